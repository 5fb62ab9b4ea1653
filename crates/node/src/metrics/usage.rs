//! What each claim's pods use of their GPUs, sampled when a page is asked for: NVML's
//! processes, their cgroups, and the claims that the journal has.
//!
//! It is no part of any call of the kubelet's. It asks the API server only for claims on whose
//! devices a pod runs that nobody has heard of.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use gpu_dra_claims::{HeldDevice, HeldPart, Phase, Record};
use gpu_dra_executor::Journal;
use gpu_dra_metrics::{Held, Load, Process, Usage, attribute, pods_of, unknown_to};
use gpu_dra_model::{ClaimUid, GpuUuid, MigDevice};
use gpu_dra_nvml::{GpuProcess, Gpus};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::claim_pods::ClaimPods;
use crate::claim_source::ClaimSource;
use crate::survey::Survey;

/// Between two samples; pages in between show the last one.
const EVERY: Duration = Duration::from_secs(5);
/// What processes did is averaged over this time.
const WINDOW: Duration = Duration::from_secs(15);
/// How long a page waits for NVML.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows of claims on one page.
const MOST_ROWS: usize = 500;
/// Claims asked for in one sample, and how long they are waited for.
const MOST_GETS: usize = 8;
const GET_LIMIT: Duration = Duration::from_secs(2);
/// A claim is not asked for again before this has passed.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Who uses what, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Every GPU was asked and has answered.
    pub is_complete: bool,
    /// By claim and pod, and what no claim has, for every GPU that has answered.
    pub usage: Usage,
    /// The memory of each share that a claim holds, in bytes: by namespace and name of the
    /// claim, and device.
    pub shares: BTreeMap<(String, String, String), u64>,
}

/// Samples, and remembers the last sample.
pub struct UsageSampler {
    /// The GPUs.
    pub gpus: Arc<dyn Gpus>,
    /// Which GPUs there are.
    pub survey: watch::Receiver<Option<Arc<Survey>>>,
    /// The claims held.
    pub journal: Arc<Journal>,
    /// Their pods.
    pub pods: Arc<ClaimPods>,
    /// Where claims are looked at again.
    pub claims: Box<dyn ClaimSource>,
    /// The host's procfs.
    pub host_proc: PathBuf,
    /// The last sample.
    pub last: Mutex<Last>,
}

/// The last sample of a [`UsageSampler`].
#[derive(Default)]
pub struct Last {
    at: Option<Instant>,
    sampled: Arc<Sampled>,
    /// One that was not waited for any longer.
    late: Option<JoinHandle<Seen>>,
    asked: HashMap<ClaimUid, Instant>,
}

/// What is seen without asking the API server.
struct Seen {
    is_complete: bool,
    processes: Vec<Process>,
    records: Vec<Arc<Record>>,
    gpus: Vec<GpuUuid>,
}

impl UsageSampler {
    /// Who uses what now, or a few seconds ago. Not complete, and with nothing in it, while
    /// NVML doesn't come back.
    pub async fn sample(&self) -> Arc<Sampled> {
        let mut last = self.last.lock().await;
        if last.at.is_some_and(|at| at.elapsed() < EVERY) {
            return Arc::clone(&last.sampled);
        }
        last.sampled = match self.look(&mut last).await {
            Some(seen) => Arc::new(self.judge(&mut last, &seen).await),
            None => Arc::default(),
        };
        last.at = Some(Instant::now());
        Arc::clone(&last.sampled)
    }

    async fn look(&self, last: &mut Last) -> Option<Seen> {
        match last.late.take() {
            Some(late) if !late.is_finished() => {
                last.late = Some(late);
                return None;
            }
            // What it saw is of long ago.
            _ => {}
        }
        let survey = self.survey.borrow().clone()?;
        // A driver that isn't there must not be opened for this.
        if survey.trouble.is_some() {
            return None;
        }
        let (gpus, journal) = (Arc::clone(&self.gpus), Arc::clone(&self.journal));
        let host_proc = self.host_proc.clone();
        let mut looking =
            tokio::task::spawn_blocking(move || see(gpus.as_ref(), &survey, &journal, &host_proc));
        match timeout(PATIENCE, &mut looking).await {
            Ok(Ok(seen)) => Some(seen),
            Ok(Err(error)) => {
                tracing::error!(%error, "looking at the processes on GPUs failed inside");
                None
            }
            Err(_) => {
                tracing::warn!("NVML takes long to tell the processes on GPUs; left out for now");
                last.late = Some(looking);
                None
            }
        }
    }

    async fn judge(&self, last: &mut Last, seen: &Seen) -> Sampled {
        last.asked.retain(|_, at| at.elapsed() < ASK_AGAIN);
        let mut held = self.held(&seen.records);
        let unknown = unknown_to(&seen.processes, &held);
        let unknown = unknown.into_iter().filter(|claim| !last.asked.contains_key(&claim.uid));
        let unknown: Vec<_> = unknown.take(MOST_GETS).cloned().collect();
        if !unknown.is_empty() {
            join_all(unknown.iter().map(async |claim| {
                match timeout(GET_LIMIT, self.claims.get(claim)).await {
                    Ok(Ok(object)) => self.pods.learn(&claim.uid, &object),
                    Ok(Err(error)) => tracing::debug!(%claim, %error, "pods of a claim not known"),
                    Err(_) => tracing::debug!(%claim, "pods of a claim not known in time"),
                }
            }))
            .await;
            let now = Instant::now();
            last.asked.extend(unknown.into_iter().map(|claim| (claim.uid, now)));
            held = self.held(&seen.records);
        }
        let mut usage = attribute(&seen.processes, &held, MOST_ROWS);
        for gpu in &seen.gpus {
            usage.unclaimed.entry(gpu.clone()).or_default();
        }
        Sampled { is_complete: seen.is_complete, usage, shares: shares(&seen.records) }
    }

    fn held(&self, records: &[Arc<Record>]) -> Vec<Held> {
        let devices = records
            .iter()
            .flat_map(|record| record.devices.iter().map(move |device| (record.as_ref(), device)));
        devices
            .filter_map(|(record, device)| {
                let instance = match &device.part {
                    None => None,
                    Some(part) => Some(mig_device(part, record, device, records)?),
                };
                Some(Held {
                    claim: record.claim.clone(),
                    pods: self.pods.of(&record.claim.uid).to_vec(),
                    device: device.device.clone(),
                    gpu: device.gpu.clone(),
                    instance: instance.map(|mig| (mig.instance, mig.compute)),
                    admin: device.admin,
                })
            })
            .collect()
    }
}

/// None where nobody has made it, which a claim that only watches can meet.
fn mig_device<'r>(
    part: &'r HeldPart,
    record: &'r Record,
    device: &HeldDevice,
    records: &'r [Arc<Record>],
) -> Option<&'r MigDevice> {
    match part {
        HeldPart::Static { device, .. } => Some(device),
        HeldPart::Partition(partition) => record
            .made(&device.gpu, *partition)
            .or_else(|| records.iter().find_map(|other| other.made(&device.gpu, *partition))),
    }
}

fn shares(records: &[Arc<Record>]) -> BTreeMap<(String, String, String), u64> {
    let of = |record: &Arc<Record>| {
        let claim = record.claim.clone();
        let shares = record.devices.iter().filter_map(move |device| {
            let bytes = device.share?.memory_mib.saturating_mul(1 << 20);
            Some(((claim.namespace.clone(), claim.name.clone(), device.device.to_string()), bytes))
        });
        shares.collect::<Vec<_>>()
    };
    records.iter().flat_map(of).collect()
}

fn see(gpus: &dyn Gpus, survey: &Survey, journal: &Journal, host_proc: &Path) -> Seen {
    let mut seen =
        Seen { is_complete: true, processes: Vec::new(), records: Vec::new(), gpus: Vec::new() };
    match journal.all() {
        Ok(records) => {
            seen.records =
                records.into_iter().filter(|record| record.phase == Phase::Prepared).collect();
        }
        Err(error) => {
            tracing::warn!(%error, "who uses what isn't known");
            seen.is_complete = false;
        }
    }
    let since = SystemTime::now().checked_sub(WINDOW).unwrap_or(SystemTime::UNIX_EPOCH);
    for gpu in survey.inventory.gpus.iter().map(|gpu| &gpu.uuid) {
        match gpus.processes(gpu, since) {
            Ok(processes) => {
                seen.gpus.push(gpu.clone());
                let found = processes.into_iter().map(|process| of_host(gpu, process, host_proc));
                seen.processes.extend(found);
            }
            Err(error) => {
                tracing::debug!(%gpu, %error, "processes not told");
                seen.is_complete = false;
            }
        }
    }
    seen
}

fn of_host(gpu: &GpuUuid, process: GpuProcess, host_proc: &Path) -> Process {
    // One that has ended meanwhile is nobody's.
    let cgroup = host_proc.join(process.pid.to_string()).join("cgroup");
    let cgroup = std::fs::read_to_string(cgroup).unwrap_or_default();
    Process {
        gpu: gpu.clone(),
        instance: process.instance,
        pods: pods_of(&cgroup),
        load: Load {
            processes: 1,
            memory_bytes: process.memory_bytes.unwrap_or_default(),
            sm_percent: process.sm_percent,
            memory_percent: process.memory_percent,
        },
    }
}
