//! `compute-policy`: the time-slice interval, which NVML has no function for.

use gpu_dra_sim_data::StateError;

use crate::failure::Failure;
use crate::target::{Smi, Target, state_dir};

/// Words for 0 to 3.
const INTERVALS: [&str; 4] = ["Default", "Short", "Medium", "Long"];

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let mut ids = None;
    let mut interval = None;
    let mut list = false;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value =
            || value.clone().or_else(|| rest.next().cloned()).ok_or_else(|| Failure::option(name));
        match name {
            "-i" | "--id" => ids = Some(value()?),
            "-l" | "--list" => list = true,
            "--set-timeslice" => interval = Some(value()?),
            _ => return Err(Failure::option(name)),
        }
    }
    let smi = Smi::open()?;
    match interval {
        Some(interval) => set(&smi.targets(ids.as_deref())?, &interval),
        None if list => show(&smi.targets(ids.as_deref())?),
        None => Err(Failure::option("compute-policy")),
    }
}

fn set(targets: &[Target<'_>], interval: &str) -> Result<(), Failure> {
    let number = match interval {
        "0" | "DEFAULT" => 0,
        "1" | "SHORT" => 1,
        "2" | "MEDIUM" => 2,
        "3" | "LONG" => 3,
        _ => return Err(Failure::option("--set-timeslice")),
    };
    let word = word(number);
    for target in targets {
        let uuid = target.device.uuid()?;
        let done: Result<bool, StateError> = state_dir()?.update(|node, state| {
            let of = node.gpus.iter().zip(&mut state.gpus).find(|(gpu, _)| gpu.uuid == uuid);
            Ok(match of {
                Some((gpu, state)) if gpu.model.time_slice => {
                    state.time_slice = number;
                    true
                }
                _ => false,
            })
        });
        if !done.map_err(|error| Failure::new(4, error.to_string()))? {
            let index = target.index;
            return Err(Failure::new(
                3,
                format!(
                    "Failed to set timeslice policy with value {word} for GPU {index} : Not Supported\n\
                     Failed to set timeslice for requested devices : Not Supported"
                ),
            ));
        }
        println!("Successfully set timeslice policy with value {word} for GPU {}", target.index);
    }
    Ok(())
}

fn show(targets: &[Target<'_>]) -> Result<(), Failure> {
    let dir = state_dir()?;
    let failed = |error: StateError| Failure::new(255, error.to_string());
    let (node, state) = (dir.node().map_err(failed)?, dir.state().map_err(failed)?);
    for target in targets {
        let uuid = target.device.uuid()?;
        let of = node.gpus.iter().zip(&state.gpus).find(|(gpu, _)| gpu.uuid == uuid);
        let value = match of {
            Some((gpu, state)) if gpu.model.time_slice => word(state.time_slice),
            _ => "N/A",
        };
        println!("GPU {}:\n    Timeslice : {value}", target.bus_id);
    }
    Ok(())
}

fn word(number: u32) -> &'static str {
    usize::try_from(number).ok().and_then(|nth| INTERVALS.get(nth)).unwrap_or(&"Unknown")
}
