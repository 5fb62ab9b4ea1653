//! `mig`: lists of profiles and instances; instances made and destroyed by hand.
//!
//! Deeds go through NVML, so that whoever else acts on the GPU is in the way here too. Lists
//! are read from the node's state, where NVML would take a call for each cell.

mod create;
mod destroy;
mod gpus;
mod list;
mod profiles;
mod raw;
mod table;

use crate::failure::Failure;
use crate::target::Smi;

/// The instances that are meant; None means all.
#[derive(Default)]
struct Ids {
    gpu_instances: Option<Vec<u32>>,
    compute_instances: Option<Vec<u32>>,
}

enum Command {
    ListProfiles,
    ListGpuInstances,
    ListComputeInstances,
    CreateGpuInstances(String),
    /// The default profile where there is none.
    CreateComputeInstances(Option<String>),
    DestroyGpuInstances,
    DestroyComputeInstances,
}

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let mut gpus = None;
    let mut ids = Ids::default();
    let mut compute = false;
    let mut command = None;
    let mut rest = args.iter().map(String::as_str).peekable();
    while let Some(arg) = rest.next() {
        let (name, given) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg, None),
        };
        let asked = match name {
            "-lgip" | "--list-gpu-instance-profiles" => Command::ListProfiles,
            "-lgi" | "--list-gpu-instances" => Command::ListGpuInstances,
            "-lci" | "--list-compute-instances" => Command::ListComputeInstances,
            "-dgi" | "--destroy-gpu-instance" => Command::DestroyGpuInstances,
            "-dci" | "--destroy-compute-instance" => Command::DestroyComputeInstances,
            "-cci" | "--create-compute-instance" => {
                let next = given.or_else(|| rest.next_if(|next| !next.starts_with('-')));
                Command::CreateComputeInstances(next.map(str::to_owned))
            }
            "-C" | "--default-compute-instance" => {
                compute = true;
                continue;
            }
            _ => {
                let mut value =
                    || given.or_else(|| rest.next()).ok_or_else(|| Failure::option(name));
                match name {
                    "-i" | "--id" => gpus = Some(value()?),
                    "-gi" | "--gpu-instance-id" => ids.gpu_instances = Some(list(name, value()?)?),
                    "-ci" | "--compute-instance-id" => {
                        ids.compute_instances = Some(list(name, value()?)?);
                    }
                    "-cgi" | "--create-gpu-instance" => {
                        let profiles = value()?.to_owned();
                        once(&mut command, Command::CreateGpuInstances(profiles), name)?;
                    }
                    _ => return Err(Failure::option(name)),
                }
                continue;
            }
        };
        once(&mut command, asked, name)?;
    }
    let command = command.ok_or_else(|| Failure::option("mig"))?;
    if compute && !matches!(command, Command::CreateGpuInstances(_)) {
        return Err(Failure::option("-C"));
    }
    let smi = Smi::open()?;
    let gpus = gpus::enabled(&smi, gpus)?;
    let instances = ids.gpu_instances.as_deref();
    match command {
        Command::ListProfiles => {
            profiles::list(&gpus);
            Ok(())
        }
        Command::ListGpuInstances => list::gpu_instances(&gpus),
        Command::ListComputeInstances => list::compute_instances(&gpus, &ids),
        Command::CreateGpuInstances(wanted) => create::gpu_instances(&smi, &gpus, &wanted, compute),
        Command::CreateComputeInstances(wanted) => {
            create::compute_instances(&smi, &gpus, wanted.as_deref(), instances)
        }
        Command::DestroyGpuInstances => destroy::gpu_instances(&smi, &gpus, instances),
        Command::DestroyComputeInstances => destroy::compute_instances(&smi, &gpus, &ids),
    }
}

/// One command at a time.
fn once(command: &mut Option<Command>, asked: Command, name: &str) -> Result<(), Failure> {
    match command.replace(asked) {
        None => Ok(()),
        Some(_) => Err(Failure::option(name)),
    }
}

fn list(name: &str, ids: &str) -> Result<Vec<u32>, Failure> {
    ids.split(',').map(|id| id.trim().parse().map_err(|_| Failure::option(name))).collect()
}
