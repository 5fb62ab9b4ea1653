//! What the health of devices makes of the pool that is published: taints, in Kubernetes' words.
//! Values in, values out.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpu_dra_health::{Report, State, Taint, UnixSeconds, Verdict};
use gpu_dra_slices::{PackError, PackedPool, tainted};
use k8s_openapi::api::resource::v1::DeviceTaint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::health_news::Reports;

/// On devices of GPUs that don't answer, where nothing worse is known.
const UNAVAILABLE: &str = "gpu.nvidia.com/unavailable";

/// Nobody must get a device that doesn't answer, whatever the policy says.
pub(crate) fn keep_out(report: &mut Report, since: UnixSeconds) {
    if report.taints.iter().any(|taint| taint.verdict >= Verdict::NoSchedule) {
        return;
    }
    let verdict = Verdict::NoSchedule;
    report.taints.insert(0, Taint { key: UNAVAILABLE, value: None, verdict, since });
    report.state = State::Unhealthy;
    if report.message.is_empty() {
        "the GPU doesn't answer; see nvidia-smi on the node".clone_into(&mut report.message);
    }
}

/// The pool of the survey itself where nothing is tainted.
pub(crate) fn with_taints(
    pool: &Arc<PackedPool>,
    reports: &Reports,
) -> Result<Arc<PackedPool>, PackError> {
    let taints: BTreeMap<_, _> = reports
        .iter()
        .filter(|(_, report)| !report.taints.is_empty())
        .map(|(name, report)| (name.clone(), report.taints.iter().map(device_taint).collect()))
        .collect();
    if taints.is_empty() {
        return Ok(Arc::clone(pool));
    }
    Ok(Arc::new(PackedPool::new(&tainted(&pool.unpack()?, &taints))))
}

fn device_taint(taint: &Taint) -> DeviceTaint {
    DeviceTaint {
        key: taint.key.to_owned(),
        value: taint.value.clone(),
        effect: taint.effect().to_owned(),
        time_added: Timestamp::from_second(taint.since.0).ok().map(Time),
    }
}
