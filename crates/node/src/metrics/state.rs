//! The node as it is when a page is asked for: what others know already, as gauges.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_dra_claims::{HeldDevice, Phase};
use gpu_dra_executor::Journal;
use gpu_dra_health::{Report, State as HealthState};
use gpu_dra_host::Files;
use gpu_dra_metrics::Gauges;
use gpu_dra_metrics::client::collector::Collector;
use gpu_dra_metrics::client::encoding::DescriptorEncoder;
use gpu_dra_model::DeviceKind;
use gpu_dra_slices::Feature;

use super::mps::MpsMetrics;
use super::usage::Sampled;
use crate::health::{Told, ToldReceiver};
use crate::readiness::Readiness;

/// Where it is looked up.
pub struct State {
    /// Kubelet, API server, GPUs.
    pub readiness: Arc<Readiness>,
    /// The health of devices.
    pub told: ToldReceiver,
    /// The claims held.
    pub journal: Arc<Journal>,
    /// The journal's files.
    pub files: Arc<dyn Files>,
    /// MPS daemons.
    pub mps: MpsMetrics,
    /// Who uses what, for this page.
    pub sampled: Mutex<Arc<Sampled>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauges = Gauges(encoder);
        self.readiness(&mut gauges)?;
        if let Some(told) = self.told.borrow().clone() {
            devices(&mut gauges, &told)?;
        }
        self.claims(&mut gauges)?;
        let (host, daemons) = self.mps.told();
        gauges.one("mps_host_up", "1 while the MPS host answers.", u64::from(host))?;
        let daemons = daemons.iter().map(|(state, count)| ([("state", *state)], *count));
        gauges.all("mps_daemons", "MPS daemons by state.", daemons)?;
        let sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        usage(&mut gauges, &sampled)
    }
}

impl State {
    fn readiness(&self, gauges: &mut Gauges<'_>) -> fmt::Result {
        let report = self.readiness.report();
        gauges.one("ready", "1 while /readyz says so.", u64::from(report.ready))?;
        let is_registered = self.readiness.registration.borrow().is_registered();
        let help = "1 while the kubelet sends claims here.";
        gauges.one("kubelet_registered", help, u64::from(is_registered))?;

        let published = self.readiness.published.borrow().clone();
        let help = "1 while the API server has the slices that it should.";
        gauges.one("publish_in_sync", help, u64::from(published.in_sync))?;
        let help = "1 while the last write or read of slices has failed.";
        gauges.one("publish_failing", help, u64::from(published.last_error.is_some()))?;
        let help = "1 while changes of slices by others may go unseen.";
        gauges.one("publish_watch_broken", help, u64::from(published.watch_error.is_some()))?;
        gauges.one("published_devices", "Devices in the published pool.", published.devices)?;
        gauges.one("published_slices", "Slices in the published pool.", published.slices)?;
        let generation = published.published_generation.unwrap_or_default();
        gauges.one("published_generation", "Generation of the published pool.", generation)?;
        let help = "Fields that the API server dropped from slices.";
        gauges.one("dropped_fields", help, published.dropped_fields.len())?;
        let gates = [Feature::SharedCounters, Feature::Taints, Feature::MultipleAllocations];
        let lacks = |feature| u64::from(published.missing_features.contains(&feature));
        let gates = gates.map(|feature| ([("gate", feature.gate())], lacks(feature)));
        let help = "1 where the API server lacks the feature gate; the pool is without it.";
        gauges.all("missing_features", help, gates)?;

        let survey = self.readiness.survey.borrow().clone();
        let survey = survey.as_deref();
        let is_up = survey.is_some_and(|survey| survey.trouble.is_none());
        gauges.one("nvml_up", "1 while NVML answers.", u64::from(is_up))?;
        let longest = self.readiness.flights.oldest().map(|(_, time)| time).unwrap_or_default();
        let help = "Since when NVML owes the answer that it owes longest; 0 if it owes none.";
        gauges.one("nvml_operation_in_flight_seconds", help, longest.as_secs_f64())?;
        let driver = survey.map(|survey| survey.inventory.driver.driver.as_str());
        let driver = driver.filter(|version| !version.is_empty());
        let driver = driver.into_iter().map(|version| ([("driver_version", version)], 1_u64));
        gauges.all("driver_info", "The NVIDIA driver.", driver)?;
        let gpus = survey.map(|survey| {
            let (inventory, missing) = (&survey.inventory, survey.missing.len());
            [
                ([("state", "answering")], inventory.gpus.len()),
                ([("state", "broken")], inventory.broken.len()),
                ([("state", "missing")], missing),
            ]
        });
        let help = "GPUs: answering; broken, so that they can't be asked; missing since they were.";
        gauges.all("gpus", help, gpus.into_iter().flatten())
    }

    fn claims(&self, gauges: &mut Gauges<'_>) -> fmt::Result {
        let records = self.journal.all().unwrap_or_else(|error| {
            tracing::warn!(%error, "claims can't be counted");
            Vec::new()
        });
        let phases = [
            (Phase::Preparing, "preparing"),
            (Phase::Prepared, "prepared"),
            (Phase::Unpreparing, "unpreparing"),
        ];
        let of = |phase| records.iter().filter(|record| record.phase == phase).count();
        let phases = phases.map(|(phase, name)| ([("phase", name)], of(phase)));
        gauges.all("claims", "Claims in the journal, by how far they got.", phases)?;

        let mut held = BTreeMap::from(["gpu", "mig", "share", "monitor"].map(|kind| (kind, 0_u64)));
        for device in records.iter().flat_map(|record| &record.devices) {
            *held.entry(held_as(device)).or_default() += 1;
        }
        let held = held.iter().map(|(kind, count)| ([("type", *kind)], *count));
        gauges.all("held_devices", "Devices that claims hold, by what of a GPU it is.", held)?;

        let listed = self.files.list(self.journal.dir()).unwrap_or_default();
        let aside = |name: &std::ffi::OsString| name.as_encoded_bytes().ends_with(b".json.bad");
        let aside = listed.iter().filter(|(name, _)| aside(name)).count();
        let help = "Files of the journal that were no records and lie aside.";
        gauges.one("journal_files_moved_aside", help, aside)?;
        let beside =
            self.journal.dir().parent().map(|dir| self.files.list(dir).unwrap_or_default());
        let is_bad = beside.iter().flatten().any(|(name, _)| name == "checkpoint.json.bad");
        let help = "1 while a state of NVIDIA's driver lies aside that could not be taken over.";
        gauges.one("takeover_state_unreadable", help, u64::from(is_bad))
    }
}

fn held_as(device: &HeldDevice) -> &'static str {
    match device {
        HeldDevice { admin: true, .. } => "monitor",
        HeldDevice { share: Some(_), .. } => "share",
        HeldDevice { part: Some(_), .. } => "mig",
        HeldDevice { .. } => "gpu",
    }
}

fn devices(gauges: &mut Gauges<'_>, told: &Told) -> fmt::Result {
    let mut devices: BTreeMap<_, u64> = BTreeMap::new();
    for kind in ["gpu", "mig", "monitor"] {
        for state in ["healthy", "tainted", "unhealthy", "unknown"] {
            devices.insert((kind, state), 0);
        }
    }
    let mut taints: BTreeMap<_, u64> = BTreeMap::new();
    for (name, kind) in &told.survey.view.devices {
        let Some(report) = told.reports.get(name) else { continue };
        *devices.entry((kind_name(kind), state_name(report))).or_default() += 1;
        for taint in &report.taints {
            *taints.entry((taint.key, taint.effect())).or_default() += 1;
        }
    }
    let devices =
        devices.iter().map(|((kind, state), count)| ([("type", *kind), ("state", *state)], *count));
    let help = "Devices that the node offers, by type and health.";
    gauges.all("devices", help, devices)?;
    let taints =
        taints.iter().map(|((key, effect), count)| ([("key", *key), ("effect", *effect)], *count));
    gauges.all("device_taints", "Devices with a taint of health, by key and effect.", taints)
}

fn kind_name(kind: &DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu { .. } => "gpu",
        DeviceKind::StaticMig { .. } | DeviceKind::Partition { .. } => "mig",
        DeviceKind::Monitor { .. } => "monitor",
    }
}

fn state_name(report: &Report) -> &'static str {
    match report.state {
        HealthState::Unknown => "unknown",
        HealthState::Unhealthy => "unhealthy",
        HealthState::Healthy if report.taints.is_empty() => "healthy",
        HealthState::Healthy => "tainted",
    }
}

fn usage(gauges: &mut Gauges<'_>, sampled: &Sampled) -> fmt::Result {
    let help = "1 while all GPUs tell who uses them.";
    gauges.one("usage_up", help, u64::from(sampled.is_complete))?;
    let usage = &sampled.usage;
    let rows: Vec<_> = usage
        .claims
        .iter()
        .map(|(row, load)| {
            let (gpu_instance, compute_instance) = row.instance.unzip();
            let number = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
            let instance =
                (number(gpu_instance.map(|id| id.0)), number(compute_instance.map(|id| id.0)));
            (row, instance, load)
        })
        .collect();
    let labelled = || {
        rows.iter().map(|(row, (gpu_instance, compute_instance), load)| {
            let labels = [
                ("claim_namespace", row.namespace.as_str()),
                ("claim_name", row.claim.as_str()),
                ("pod_name", row.pod.as_str()),
                ("device", row.device.as_str()),
                ("gpu", row.gpu.as_str()),
                ("gpu_instance", gpu_instance.as_str()),
                ("compute_instance", compute_instance.as_str()),
            ];
            (labels, *load)
        })
    };
    let help = "Processes of each claim's pods on the claim's devices.";
    let processes = labelled().map(|(labels, load)| (labels, load.processes));
    gauges.all("claim_processes", help, processes)?;
    let help = "GPU memory that each claim's pods use.";
    let memory = labelled().map(|(labels, load)| (labels, load.memory_bytes));
    gauges.all("claim_memory_used_bytes", help, memory)?;
    let help = "Part of the time in which each claim's pods computed, 0 to 1; not in MIG mode.";
    let sm = labelled().filter_map(|(labels, load)| Some((labels, ratio(load.sm_percent?))));
    gauges.all("claim_sm_utilization_ratio", help, sm)?;
    let help = "Part of the time in which each claim's pods used GPU memory, 0 to 1.";
    let memory =
        labelled().filter_map(|(labels, load)| Some((labels, ratio(load.memory_percent?))));
    gauges.all("claim_memory_utilization_ratio", help, memory)?;
    let help = "GPU memory of the share of a GPU that a claim holds.";
    let shares = sampled.shares.iter().map(|((namespace, claim, device), bytes)| {
        let labels = [
            ("claim_namespace", namespace.as_str()),
            ("claim_name", claim.as_str()),
            ("device", device.as_str()),
        ];
        (labels, *bytes)
    });
    gauges.all("claim_share_memory_bytes", help, shares)?;
    let help = "Claims, pods and devices whose use is left out, being too many.";
    gauges.one("claim_rows_left_out", help, usage.left_out)?;

    let unclaimed = || usage.unclaimed.iter().map(|(gpu, load)| ([("gpu", gpu.as_str())], *load));
    let help = "Processes on each GPU that belong to no claim's pod.";
    let processes = unclaimed().map(|(labels, load)| (labels, load.processes));
    gauges.all("unclaimed_processes", help, processes)?;
    let help = "GPU memory that processes of no claim's pod use.";
    let memory = unclaimed().map(|(labels, load)| (labels, load.memory_bytes));
    gauges.all("unclaimed_memory_used_bytes", help, memory)
}

fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}
