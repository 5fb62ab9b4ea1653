//! `mig -lgip`: the profiles of GPU instances and how many more of each there can be.

use gpu_dra_sim_data::{StateError, mig_rules};

use crate::failure::Failure;
use crate::target::{Smi, state_dir};

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let mut ids = None;
    let mut list = false;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "-i" | "--id" => ids = Some(rest.next().ok_or_else(|| Failure::option("-i"))?),
            "-lgip" | "--list-gpu-instance-profiles" => list = true,
            other => return Err(Failure::option(other)),
        }
    }
    if !list {
        return Err(Failure::option("mig"));
    }
    profiles(&Smi::open()?, ids.map(String::as_str))
}

fn profiles(smi: &Smi, ids: Option<&str>) -> Result<(), Failure> {
    let dir = state_dir()?;
    let failed = |error: StateError| Failure::new(255, error.to_string());
    let (node, state) = (dir.node().map_err(failed)?, dir.state().map_err(failed)?);
    let mut rows = Vec::new();
    for target in smi.targets(ids)? {
        let uuid = target.device.uuid()?;
        let of = node.gpus.iter().zip(&state.gpus).find(|(gpu, _)| gpu.uuid == uuid);
        let Some((gpu, state)) = of.filter(|(_, state)| state.mig) else { continue };
        let Some(table) = &gpu.model.mig else { continue };
        let occupied = state.occupied();
        let mut profiles: Vec<_> = table.profiles.iter().collect();
        profiles.sort_by_key(|(_, profile)| (profile.slices, profile.memory_mib, profile.index));
        for (id, profile) in profiles {
            let hundredths = profile.memory_mib * 100 / 1024;
            let free = mig_rules::remaining(table, &occupied, *id);
            rows.push(format!(
                "{:>4}  MIG {:<15}{id:>3}{:>6}/{:<2}{:>8}.{:02}{:>8}{:>7}{:>6}{:>6}",
                target.index,
                profile.name,
                free,
                profile.max,
                hundredths / 100,
                hundredths % 100,
                "No",
                profile.multiprocessors,
                profile.decoders,
                profile.encoders,
            ));
            rows.push(format!(
                "{:>60}{:>6}{:>6}",
                profile.copy_engines, profile.jpeg_engines, profile.ofa_engines
            ));
        }
    }
    if rows.is_empty() {
        return Err(Failure::new(6, "No MIG-enabled devices found."));
    }
    let rule = "-".repeat(76);
    println!("+{rule}+");
    for heading in [
        " GPU instance profiles:",
        " GPU  Name               ID   Instances   Memory     P2P     SM   DEC   ENC",
        "                              Free/Total    GiB              CE  JPEG   OFA",
    ] {
        println!("|{heading:<76}|");
    }
    println!("|{}|", "=".repeat(76));
    for row in rows {
        println!("|{row:<76}|");
    }
    println!("+{rule}+");
    Ok(())
}
