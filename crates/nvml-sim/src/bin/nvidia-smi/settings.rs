//! Modes of GPUs, and resets.

use gpu_dra_sim_data::StateError;
use nvml_wrapper::enum_wrappers::device::ComputeMode;

use crate::failure::Failure;
use crate::target::{Smi, state_dir};

pub(crate) fn compute_mode(smi: &Smi, ids: Option<&str>, mode: &str) -> Result<(), Failure> {
    let (mode, name) = match mode {
        "0" | "DEFAULT" => (ComputeMode::Default, "DEFAULT"),
        "1" | "EXCLUSIVE_THREAD" => (ComputeMode::ExclusiveThread, "EXCLUSIVE_THREAD"),
        "2" | "PROHIBITED" => (ComputeMode::Prohibited, "PROHIBITED"),
        "3" | "EXCLUSIVE_PROCESS" => (ComputeMode::ExclusiveProcess, "EXCLUSIVE_PROCESS"),
        _ => return Err(Failure::option("-c")),
    };
    for mut target in smi.targets(ids)? {
        let what = format!("Unable to set the compute mode for GPU {}", target.bus_id);
        target.device.set_compute_mode(mode).map_err(|e| Failure::deed(&what, &e))?;
        println!("Set compute mode to {name} for GPU {}.", target.bus_id);
    }
    println!("All done.");
    Ok(())
}

pub(crate) fn persistence(smi: &Smi, ids: Option<&str>, mode: &str) -> Result<(), Failure> {
    let on = flag("-pm", mode)?;
    for mut target in smi.targets(ids)? {
        let word = if on { "Enabled" } else { "Disabled" };
        if target.device.is_in_persistent_mode()? == on {
            println!("Persistence mode is already {word} for GPU {}.", target.bus_id);
            continue;
        }
        let what = format!("Unable to set persistence mode for GPU {}", target.bus_id);
        target.device.set_persistent(on).map_err(|error| Failure::deed(&what, &error))?;
        println!("{word} persistence mode for GPU {}.", target.bus_id);
    }
    println!("All done.");
    Ok(())
}

pub(crate) fn mig(smi: &Smi, ids: Option<&str>, mode: &str) -> Result<(), Failure> {
    let on = flag("-mig", mode)?;
    let (deed, pending) =
        if on { ("Enabled", "pending enable") } else { ("Disabled", "pending disable") };
    for target in smi.targets(ids)? {
        let what = format!("Unable to set MIG mode for GPU {}", target.bus_id);
        let status =
            target.device.set_mig_mode(on).map_err(|error| Failure::deed(&what, &error))?;
        let reason = match status {
            0 => {
                println!("{deed} MIG Mode for GPU {}", target.bus_id);
                continue;
            }
            19 => "In use by another client",
            16 => "GPU requires reset",
            _ => "Unknown Error",
        };
        println!("Warning: MIG mode is in {pending} state for GPU {}:{reason}", target.bus_id);
    }
    println!("All done.");
    Ok(())
}

/// Resets go to the hardware, not through NVML.
pub(crate) fn reset(smi: &Smi, ids: Option<&str>) -> Result<(), Failure> {
    let dir = state_dir()?;
    let failed = |error: StateError| Failure::new(255, error.to_string());
    let node = dir.node().map_err(failed)?;
    let control = dir.control().map_err(failed)?;
    for target in smi.targets(ids)? {
        let uuid = target.device.uuid()?;
        let position = node.position(&uuid).ok_or_else(|| Failure::new(6, "Not Found"))?;
        if control.of_gpu(&node, position).is_some_and(|trouble| trouble.reset_refused) {
            return Err(Failure::new(
                3,
                format!("Resetting GPU {} is not supported.", target.bus_id),
            ));
        }
        dir.reset_gpu(position).map_err(failed)?;
        println!("GPU {} was successfully reset.", target.bus_id);
    }
    println!("All done.");
    Ok(())
}

fn flag(option: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "0" | "DISABLED" => Ok(false),
        "1" | "ENABLED" => Ok(true),
        _ => Err(Failure::option(option)),
    }
}
