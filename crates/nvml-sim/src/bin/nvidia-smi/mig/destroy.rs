//! `mig -dci` and `-dgi`: instances are taken away, all or those of some ids.
//!
//! In order, until one is refused; those taken before stay away.

use super::Ids;
use super::gpus::{MigGpu, compute};
use super::list::none_found;
use super::raw::Instances;
use crate::failure::Failure;
use crate::target::Smi;

pub(super) fn compute_instances(smi: &Smi, gpus: &[MigGpu<'_>], ids: &Ids) -> Result<(), Failure> {
    let mut any = false;
    for gpu in gpus {
        for (instance, _) in gpu.instances(ids.gpu_instances.as_deref()) {
            for one in compute(instance, ids.compute_instances.as_deref()) {
                any = true;
                let what = format!(
                    "compute instance ID {:>2} from GPU {:>2} GPU instance ID {:>2}",
                    one.id, gpu.index, instance.id
                );
                let calls = Instances::of(&smi.nvml, &gpu.device);
                calls.destroy_compute(instance.id, one.id).map_err(|refusal| {
                    let all = "Failed to destroy compute instances";
                    refusal.failure(&format!("Unable to destroy {what}"), all)
                })?;
                println!("Successfully destroyed {what}");
            }
        }
    }
    if any { Ok(()) } else { Err(none_found("compute")) }
}

pub(super) fn gpu_instances(
    smi: &Smi,
    gpus: &[MigGpu<'_>],
    ids: Option<&[u32]>,
) -> Result<(), Failure> {
    let mut any = false;
    for gpu in gpus {
        for (instance, _) in gpu.instances(ids) {
            any = true;
            let what = format!("GPU instance ID {:>2} from GPU {:>2}", instance.id, gpu.index);
            Instances::of(&smi.nvml, &gpu.device).destroy(instance.id).map_err(|refusal| {
                let all = "Failed to destroy GPU instances";
                refusal.failure(&format!("Unable to destroy {what}"), all)
            })?;
            println!("Successfully destroyed {what}");
        }
    }
    if any { Ok(()) } else { Err(none_found("GPU")) }
}
