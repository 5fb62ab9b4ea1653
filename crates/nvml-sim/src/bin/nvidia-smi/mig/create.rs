//! `mig -cgi` and `-cci`: instances by hand.
//!
//! In order, until one is refused; those made before stay.

use gpu_dra_sim_data::mig_table::{CiProfile, GiProfile, Placement};

use super::gpus::{MigGpu, compute_name};
use super::list::none_found;
use super::raw::{Instances, Refusal};
use crate::failure::Failure;
use crate::target::Smi;

/// `profiles` are ids or names, each with `:START` behind it or not; with `compute`, each
/// instance gets the compute instance that takes all of it.
pub(super) fn gpu_instances(
    smi: &Smi,
    gpus: &[MigGpu<'_>],
    profiles: &str,
    compute: bool,
) -> Result<(), Failure> {
    let wanted = profiles.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    for gpu in gpus {
        for (name, start) in &wanted {
            gpu_instance(smi, gpu, name, *start, compute)?;
        }
    }
    Ok(())
}

fn parse(tuple: &str) -> Result<(&str, Option<u32>), Failure> {
    match tuple.split_once(':') {
        None => Ok((tuple, None)),
        Some((profile, start)) => {
            let start = start.parse().map_err(|_| Failure::option("-cgi"))?;
            Ok((profile, Some(start)))
        }
    }
}

fn gpu_instance(
    smi: &Smi,
    gpu: &MigGpu<'_>,
    name: &str,
    start: Option<u32>,
    compute: bool,
) -> Result<(), Failure> {
    let calls = Instances::of(&smi.nvml, &gpu.device);
    let refused = |refusal: &Refusal| {
        let one =
            format!("Unable to create a GPU instance on GPU {:>2} using profile {name}", gpu.index);
        refusal.failure(&one, "Failed to create GPU instances")
    };
    let number = name.parse().ok();
    let bare = name.strip_prefix("MIG ").unwrap_or(name);
    let found = gpu.table.profiles.iter().find(|(id, of)| number == Some(**id) || of.name == bare);
    let Some((&id, profile)) = found else {
        return Err(refused(&calls.refusal(Refusal::NOT_FOUND)));
    };
    let at = start.map(|start| Placement { start, size: profile.size });
    let made = calls.create(id, at).map_err(|refusal| refused(&refusal))?;
    println!(
        "Successfully created GPU instance ID {made:>2} on GPU {:>2} using profile MIG {} (ID {id:>2})",
        gpu.index, profile.name
    );
    match default_compute(gpu, profile) {
        Some(part) if compute => compute_instance(smi, gpu, made, profile, &part),
        _ => Ok(()),
    }
}

/// The compute profile that takes a whole GPU instance.
fn default_compute(gpu: &MigGpu<'_>, whole: &GiProfile) -> Option<CiProfile> {
    whole.ci_profiles(&gpu.table).into_iter().find(|part| part.slices == whole.slices)
}

/// Compute instances in the GPU instances of those ids, or in all.
pub(super) fn compute_instances(
    smi: &Smi,
    gpus: &[MigGpu<'_>],
    profiles: Option<&str>,
    gpu_instances: Option<&[u32]>,
) -> Result<(), Failure> {
    let mut any = false;
    for gpu in gpus {
        for (instance, whole) in gpu.instances(gpu_instances) {
            any = true;
            let wanted: Vec<_> = match profiles {
                Some(profiles) => profiles.split(',').map(Some).collect(),
                None => vec![None],
            };
            for name in wanted {
                let part = match name {
                    Some(name) => named_compute(gpu, whole, name),
                    None => default_compute(gpu, whole),
                };
                let Some(part) = part else {
                    let calls = Instances::of(&smi.nvml, &gpu.device);
                    let name = name.unwrap_or("default");
                    return Err(refused(
                        gpu,
                        instance.id,
                        name,
                        &calls.refusal(Refusal::NOT_FOUND),
                    ));
                };
                compute_instance(smi, gpu, instance.id, whole, &part)?;
            }
        }
    }
    if any { Ok(()) } else { Err(none_found("GPU")) }
}

fn named_compute(gpu: &MigGpu<'_>, whole: &GiProfile, name: &str) -> Option<CiProfile> {
    let number = name.parse().ok();
    let bare = name.strip_prefix("MIG ").unwrap_or(name);
    whole
        .ci_profiles(&gpu.table)
        .into_iter()
        .find(|part| number == Some(part.id) || compute_name(whole, part) == bare)
}

fn compute_instance(
    smi: &Smi,
    gpu: &MigGpu<'_>,
    instance: u32,
    whole: &GiProfile,
    part: &CiProfile,
) -> Result<(), Failure> {
    let made = Instances::of(&smi.nvml, &gpu.device)
        .create_compute(instance, part.id)
        .map_err(|refusal| refused(gpu, instance, &part.id.to_string(), &refusal))?;
    println!(
        "Successfully created compute instance ID {made:>2} on GPU {:>2} GPU instance ID \
         {instance:>2} using profile MIG {} (ID {:>2})",
        gpu.index,
        compute_name(whole, part),
        part.id
    );
    Ok(())
}

fn refused(gpu: &MigGpu<'_>, instance: u32, profile: &str, refusal: &Refusal) -> Failure {
    let one = format!(
        "Unable to create a compute instance on GPU {:>2} GPU instance ID {instance:>2} using \
         profile {profile}",
        gpu.index
    );
    refusal.failure(&one, "Failed to create compute instances")
}
