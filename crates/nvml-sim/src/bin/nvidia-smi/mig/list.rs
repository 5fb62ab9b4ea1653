//! `mig -lgi` and `-lci`: the instances that exist.

use super::gpus::{MigGpu, compute, compute_name};
use super::{Ids, table};
use crate::failure::Failure;

pub(super) fn gpu_instances(gpus: &[MigGpu<'_>]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for gpu in gpus {
        for (instance, profile) in gpu.instances(None) {
            rows.push(format!(
                "{:>4}  MIG {:<15}{:>3}{:>9}{:>11}:{}",
                gpu.index,
                profile.name,
                instance.profile,
                instance.id,
                instance.placement.start,
                instance.placement.size,
            ));
        }
    }
    if rows.is_empty() {
        return Err(none_found("GPU"));
    }
    table::print::<55>(
        &[
            " GPU instances:",
            " GPU   Name             Profile  Instance   Placement",
            "                          ID       ID       Start:Size",
        ],
        &rows,
    );
    Ok(())
}

pub(super) fn compute_instances(gpus: &[MigGpu<'_>], ids: &Ids) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for gpu in gpus {
        for (instance, whole) in gpu.instances(ids.gpu_instances.as_deref()) {
            let profiles = whole.ci_profiles(&gpu.table);
            for one in compute(instance, ids.compute_instances.as_deref()) {
                let profile = profiles.iter().find(|profile| profile.id == one.profile);
                let name = profile.map(|part| compute_name(whole, part)).unwrap_or_default();
                rows.push(format!(
                    "{:>4}{:>7}       MIG {name:<15}{:>3}{:>10}{:>11}:{}",
                    gpu.index,
                    instance.id,
                    one.profile,
                    one.id,
                    one.placement.start,
                    one.placement.size,
                ));
            }
        }
    }
    if rows.is_empty() {
        return Err(none_found("compute"));
    }
    table::print::<68>(
        &[
            " Compute instances:",
            " GPU     GPU       Name             Profile   Instance   Placement",
            "       Instance                       ID        ID       Start:Size",
            "         ID",
        ],
        &rows,
    );
    Ok(())
}

/// As the real program tells that there is nothing to list or destroy.
pub(super) fn none_found(kind: &str) -> Failure {
    Failure::new(6, format!("No {kind} instances found: Not Found"))
}
