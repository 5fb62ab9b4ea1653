//! A stand-in for the driver's `nvidia-smi`: the few commands that others call.
//!
//! Texts and exit codes follow the real program's. It reads GPUs through the simulated NVML
//! beside it, like any other client; the time-slice interval, for which NVML has no
//! function, it keeps in the node's state directory.
#![deny(unsafe_code)]

mod failure;
mod list;
mod mig;
mod policy;
mod settings;
mod target;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::target::Smi;

const USAGE: &str = "nvidia-smi of a simulated driver. It knows:
  --version                                     versions of driver and libraries
  -L                                            list GPUs and MIG devices
  -q [-i IDS]                                   describe GPUs
  [-i IDS] -c MODE                              compute mode: DEFAULT, EXCLUSIVE_THREAD,
                                                PROHIBITED, EXCLUSIVE_PROCESS or 0 to 3
  [-i IDS] -pm 0|1                              persistence mode
  [-i IDS] -mig 0|1                             MIG mode
  [-i IDS] --gpu-reset                          reset GPUs
  compute-policy [-i IDS] --set-timeslice N     0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG
  compute-policy [-i IDS] -l                    list compute policies
  mig [-i IDS] -lgip | -lgi | -lci              list GPU instance profiles, GPU instances,
                                                compute instances
  mig [-i IDS] -cgi PROFILE[:START][,...] [-C]  create GPU instances, with -C the compute
                                                instance that takes all of each
  mig [-i IDS] -cci [PROFILE[,...]] [-gi IDS]   create compute instances
  mig [-i IDS] -dci [-ci IDS] [-gi IDS]         destroy compute instances
  mig [-i IDS] -dgi [-gi IDS]                   destroy GPU instances
PROFILE is an id or a name. IDS of -i are indexes, UUIDs or PCI bus ids; all IDS have commas
between.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

/// What the options ask for.
enum Command {
    Describe,
    ComputeMode(String),
    Persistence(String),
    Mig(String),
    Reset,
}

fn run(args: &[String]) -> Result<(), Failure> {
    match args.first().map(String::as_str) {
        Some("-h" | "--help") => {
            println!("{USAGE}");
            return Ok(());
        }
        Some("--version") => return list::versions(&Smi::open()?),
        Some("-L" | "--list-gpus") => return list::gpus(&Smi::open()?),
        Some("compute-policy") => return policy::run(args.get(1..).unwrap_or_default()),
        Some("mig") => return mig::run(args.get(1..).unwrap_or_default()),
        _ => {}
    }
    let (ids, command) = options(args)?;
    let smi = Smi::open()?;
    let ids = ids.as_deref();
    match command {
        Command::Describe => list::describe(&smi, ids),
        Command::ComputeMode(mode) => settings::compute_mode(&smi, ids, &mode),
        Command::Persistence(mode) => settings::persistence(&smi, ids, &mode),
        Command::Mig(mode) => settings::mig(&smi, ids, &mode),
        Command::Reset => settings::reset(&smi, ids),
    }
}

fn options(args: &[String]) -> Result<(Option<String>, Command), Failure> {
    let mut ids = None;
    let mut command = Command::Describe;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value =
            || value.clone().or_else(|| rest.next().cloned()).ok_or_else(|| Failure::option(name));
        match name {
            "-q" | "--query" => command = Command::Describe,
            "-i" | "--id" => ids = Some(value()?),
            "-c" | "--compute-mode" => command = Command::ComputeMode(value()?),
            "-pm" | "--persistence-mode" => command = Command::Persistence(value()?),
            "-mig" | "--multi-instance-gpu" => command = Command::Mig(value()?),
            "-r" | "--gpu-reset" => command = Command::Reset,
            _ => return Err(Failure::option(name)),
        }
    }
    Ok((ids, command))
}
