//! The real side of a claim's acts: the driver's `nvidia-smi` for the time slice, and the CDI
//! spec from the driver's files and device nodes as they are now.
//!
//! MIG devices are made and removed in [`partition`], MPS daemons asked for in [`mps`].
//!
//! Nothing is remembered between two calls but what can't be stale: a driver that was
//! replaced a moment ago is seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_cdi::{ContainerEdits, ShareId, SpecDevice, claim_spec};
use gpu_dra_claims::{HeldDevice, HeldPart, KnownStep, Record, Step, share_daemon};
use gpu_dra_driverroot::{
    DriverFiles, DriverFilesCache, DriverRoot, Hook, NodeFinder, gpu_edits, mig_edits,
};
use gpu_dra_executor::{Done, EffectError, Effects};
use gpu_dra_host::{Boundary, Command, Processes};
use gpu_dra_model::config::Interval;
use gpu_dra_model::{ComputeMode, DriverName, GpuUuid};
use gpu_dra_nvml::{GpuError, Gpus};
use tokio::sync::watch;

use crate::events::Announcer;
use crate::survey::Survey;

mod mps;
mod partition;

pub use mps::MpsHost;
use partition::Partitions;

/// nvidia-smi initialises every GPU first, which takes seconds on a cold node.
const NVIDIA_SMI_LIMIT: Duration = Duration::from_secs(20);

/// This node.
pub struct Machine {
    /// The DRA driver's name, which CDI names carry.
    pub driver: DriverName,
    /// The GPUs.
    pub gpus: Arc<dyn Gpus>,
    /// What was found on the node last.
    pub survey: watch::Receiver<Option<Arc<Survey>>>,
    /// The driver's root.
    pub root: DriverRoot,
    /// Device nodes.
    pub nodes: NodeFinder,
    /// Our container hook as the host sees it and as this process sees it.
    pub hook: PathBuf,
    /// Runs nvidia-smi.
    pub processes: Arc<dyn Processes>,
    /// The driver's files found last, if nothing has changed.
    pub files: DriverFilesCache,
    /// The points between effects.
    pub boundary: Boundary,
    /// Runs MPS daemons.
    pub mps: MpsHost,
    /// Where the operator is told of changes to the GPUs.
    pub announcer: Announcer,
}

impl Effects for Machine {
    fn look(&self, mut plan: Record) -> Result<Record, EffectError> {
        self.partitions().check(&plan)?;
        for step in &mut plan.steps {
            if let Step::Known(
                KnownStep::ExclusiveProcess { gpu, before }
                | KnownStep::ShareDaemon { gpu, before },
            ) = step
            {
                *before = self.gpus.compute_mode(gpu).map_err(|error| mode_failed(gpu, &error))?;
            }
        }
        Ok(plan)
    }

    fn holds(&self, record: &Record) -> Result<bool, EffectError> {
        let steps = record.known_steps().unwrap_or_default().into_iter();
        let daemons = steps.filter_map(|step| match step {
            KnownStep::MpsDaemon { daemon, .. } => Some(daemon.clone()),
            KnownStep::ShareDaemon { gpu, .. } => Some(share_daemon(gpu)),
            _ => None,
        });
        Ok(self.partitions().holds(record)? && self.mps.has(daemons)?)
    }

    fn apply(&self, step: &KnownStep, begun: &Record) -> Result<Done, EffectError> {
        match step {
            KnownStep::TimeSlice { gpu, interval } => self.set_time_slice(gpu, *interval)?,
            KnownStep::MigModeOff { gpu } => self.partitions().leave_mig_mode(gpu)?,
            KnownStep::CreatePartition { gpu, partition, switch_mode, .. } => {
                return Ok(Done::Made(self.partitions().make(gpu, *partition, *switch_mode)?));
            }
            KnownStep::ExclusiveProcess { gpu, .. } => {
                self.set_compute_mode(gpu, ComputeMode::ExclusiveProcess)?;
            }
            KnownStep::MpsDaemon { daemon, devices, config } => {
                self.mps.ensure(&self.boundary, daemon, devices, config, begun)?;
            }
            KnownStep::ShareDaemon { gpu, .. } => {
                self.set_compute_mode(gpu, ComputeMode::ExclusiveProcess)?;
                self.mps.ensure_for_shares(&self.boundary, gpu)?;
            }
        }
        Ok(Done::AsPlanned)
    }

    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        match step {
            KnownStep::TimeSlice { gpu, .. } => match self.gpus.minor_of(gpu) {
                // It comes back with the default.
                Err(GpuError::Gone { .. }) => Ok(()),
                _ => match self.set_time_slice(gpu, Interval::Default) {
                    // Nor was it ever set.
                    Err(EffectError::TimeSliceUnsupported { .. }) => Ok(()),
                    set => set,
                },
            },
            KnownStep::MigModeOff { .. } => Ok(()),
            KnownStep::CreatePartition { gpu, partition, switch_mode, made } => {
                self.partitions().unmake(gpu, *partition, made.as_ref(), *switch_mode)
            }
            KnownStep::ExclusiveProcess { gpu, before } => match self.gpus.minor_of(gpu) {
                Err(GpuError::Gone { .. }) => Ok(()),
                _ => self.set_compute_mode(gpu, *before),
            },
            KnownStep::MpsDaemon { daemon, .. } => self.mps.stop(&self.boundary, daemon),
            KnownStep::ShareDaemon { gpu, before } => {
                self.mps.stop(&self.boundary, &share_daemon(gpu))?;
                match self.gpus.minor_of(gpu) {
                    Err(GpuError::Gone { .. }) => Ok(()),
                    _ => self.set_compute_mode(gpu, *before),
                }
            }
        }
    }

    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError> {
        let survey = self.survey.borrow().clone();
        let survey = survey.as_deref();
        let hook = Hook::find(&self.hook, &self.hook).map_err(files)?;
        let mut devices: Vec<SpecDevice> = Vec::with_capacity(record.devices.len());
        for held in &record.devices {
            let edits = self.with_mps(record, held, survey, &hook)?;
            let (device, share) = (held.device.clone(), held.share_id.as_deref());
            let device = SpecDevice { device, share: share.and_then(ShareId::new), edits };
            // The driver that prepared the claim may have named its shares without their id.
            let alias = SpecDevice { share: None, ..device.clone() };
            let named = |other: &SpecDevice| other.device == alias.device && other.share.is_none();
            if record.adopted.is_some() && device.share.is_some() && !devices.iter().any(named) {
                devices.push(alias);
            }
            devices.push(device);
        }
        let found = self.driver_files(survey)?;
        let common = self.nodes.common().map_err(files)?;
        let common = self.files.common_edits(&found, common, &hook);
        Ok(claim_spec(&self.driver, &record.claim.uid, &devices, &common)?.to_bytes()?)
    }
}

impl Machine {
    fn partitions(&self) -> Partitions<'_> {
        Partitions {
            gpus: self.gpus.as_ref(),
            boundary: &self.boundary,
            announcer: &self.announcer,
        }
    }

    /// What a container gets for one device of the claim, and to reach its MPS daemon.
    fn with_mps(
        &self,
        record: &Record,
        device: &HeldDevice,
        survey: Option<&Survey>,
        hook: &Hook,
    ) -> Result<ContainerEdits, EffectError> {
        let mut edits = self.device_edits(record, device, survey, hook)?;
        if let Some(daemon) = record.adopted_mps(device) {
            // It lies where NVIDIA's driver keeps it: in the plugin folder, as the hook does.
            let of_client = mps::adopted_edits(&self.hook.with_file_name("mps").join(daemon));
            edits.env.extend(of_client.env);
            edits.mounts.extend(of_client.mounts);
        }
        if let Some(daemon) = record.mps_daemon(device) {
            let of_client = self.mps.edits(&daemon, device.share)?;
            edits.env.extend(of_client.env);
            edits.mounts.extend(of_client.mounts);
        }
        Ok(edits)
    }

    fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), EffectError> {
        self.boundary.pass("set compute mode");
        self.gpus.set_compute_mode(gpu, mode).map_err(|error| mode_failed(gpu, &error))?;
        self.boundary.pass("compute mode is set");
        Ok(())
    }

    /// What a container gets for one device of the claim.
    fn device_edits(
        &self,
        record: &Record,
        device: &HeldDevice,
        survey: Option<&Survey>,
        hook: &Hook,
    ) -> Result<ContainerEdits, EffectError> {
        let gone = || EffectError::GpuGone(device.gpu.clone());
        let minor = self.gpus.minor_of(&device.gpu).map_err(|_| gone())?;
        let mig = match &device.part {
            None => {
                let gpu = survey.and_then(|survey| survey.inventory.gpu(&device.gpu));
                let nodes = self.nodes.gpu(minor, &gpu.ok_or_else(gone)?.pci_bus_id);
                return Ok(gpu_edits(&nodes.map_err(files)?, hook));
            }
            Some(HeldPart::Static { device, .. }) => device.clone(),
            Some(HeldPart::Partition(partition)) => {
                let made = record.made(&device.gpu, *partition).cloned();
                let found = match made {
                    Some(made) => Some(made),
                    None => self.partitions().find(&device.gpu, *partition)?,
                };
                found.ok_or_else(|| EffectError::NothingToWatch {
                    gpu: device.gpu.clone(),
                    start: partition.placement.start,
                })?
            }
        };
        let nodes = self.nodes.mig(minor, mig.instance, mig.compute).map_err(files)?;
        Ok(mig_edits(&nodes))
    }

    /// The files of the driver that was seen last.
    fn driver_files(&self, survey: Option<&Survey>) -> Result<Arc<DriverFiles>, EffectError> {
        let version = survey.map_or("", |survey| survey.inventory.driver.driver.as_str());
        self.files.get(&self.root, version).map_err(files)
    }

    fn set_time_slice(&self, gpu: &GpuUuid, interval: Interval) -> Result<(), EffectError> {
        self.boundary.pass("set time slice");
        let command = Command {
            program: self.nvidia_smi()?,
            args: [
                "compute-policy",
                "-i",
                gpu.as_str(),
                "--set-timeslice",
                &interval.timeslice_argument().to_string(),
            ]
            .map(Into::into)
            .to_vec(),
            // Preloaded, not searched: the library's folder may hold another glibc than ours.
            env: vec![("LD_PRELOAD".into(), self.library()?.into_os_string())],
            limit: NVIDIA_SMI_LIMIT,
        };
        let output = self.processes.run(&command)?;
        self.boundary.pass("time slice is set");
        let said = one_line(&output.text);
        match output.code {
            Some(0) => Ok(()),
            _ if output.text.to_ascii_lowercase().contains("not supported") => {
                Err(EffectError::TimeSliceUnsupported { gpu: gpu.clone(), said })
            }
            code => Err(EffectError::TimeSliceFailed {
                gpu: gpu.clone(),
                code: code.map_or("a signal".to_owned(), |code| code.to_string()),
                said,
            }),
        }
    }

    fn library(&self) -> Result<PathBuf, EffectError> {
        self.root.find_nvml().map_err(files)
    }

    fn nvidia_smi(&self) -> Result<PathBuf, EffectError> {
        let found = self.driver_files(self.survey.borrow().clone().as_deref())?;
        let program = found
            .programs
            .iter()
            .map(|program| Path::new(&program.host_path))
            .find(|path| path.file_name().is_some_and(|name| name == "nvidia-smi"))
            .and_then(|path| path.strip_prefix(&self.root.host).ok());
        let program = program.ok_or_else(|| {
            EffectError::DriverFiles(format!(
                "no nvidia-smi under {}; the time slice can't be set without it",
                self.root.host.display()
            ))
        })?;
        Ok(self.root.here.join(program))
    }
}

fn mode_failed(gpu: &GpuUuid, error: &GpuError) -> EffectError {
    EffectError::ComputeMode { gpu: gpu.clone(), said: said(error) }
}

fn files(error: impl std::error::Error) -> EffectError {
    EffectError::DriverFiles(said(&error))
}

/// The error with its cause, in one line.
fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output");
    line.chars().take(120).collect()
}
