//! What runs on a GPU now, and how much of it each process uses. What the driver doesn't say
//! (an older one, or MIG mode) is left out.

use std::collections::BTreeMap;
use std::time::SystemTime;

use gpu_dra_model::{ComputeInstanceId, GpuInstanceId};
use nvml_wrapper::{Device, Nvml};

use crate::code::{CallError, if_known};
use crate::raw_processes;

/// What `nvmlProcessInfo_t` has in place of an instance.
const NO_INSTANCE: u32 = u32::MAX;
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;

/// A process that computes on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its process id. Newer drivers tell it as the caller's PID namespace has it and leave
    /// out what that can't see, older ones always as the host has it: ask from the host's.
    pub pid: u32,
    /// The MIG instance that it runs on; None for the whole GPU.
    pub instance: Option<(GpuInstanceId, ComputeInstanceId)>,
    /// Memory of the GPU that it uses, in bytes.
    pub memory_bytes: Option<u64>,
    /// Part of the time in which it computed, in per cent; None in MIG mode.
    pub sm_percent: Option<u32>,
    /// Part of the time in which it read or wrote the GPU's memory, in per cent.
    pub memory_percent: Option<u32>,
}

/// What a process did, on average over samples.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    samples: u64,
    sm: u64,
    memory: u64,
}

impl Average {
    fn of(self, sum: u64) -> Option<u32> {
        u32::try_from(sum.checked_div(self.samples)?.min(100)).ok()
    }
}

/// All of a physical GPU: CUDA processes and clients of MPS, each once.
pub(crate) fn read(
    nvml: &Nvml,
    device: &Device<'_>,
    since: SystemTime,
) -> Result<Vec<GpuProcess>, CallError> {
    let own = if_known(raw_processes::compute(nvml, device))?.unwrap_or_default();
    let clients = if_known(raw_processes::mps(nvml, device))?.unwrap_or_default();
    if own.is_empty() && clients.is_empty() {
        return Ok(Vec::new());
    }
    let did = averages(nvml, device, since)?;
    // One process may be in both lists, or on several instances.
    let mut found = BTreeMap::new();
    for info in own.into_iter().chain(clients) {
        let some = |id: u32| (id != NO_INSTANCE).then_some(id);
        let instance = some(info.gpuInstanceId)
            .map(GpuInstanceId)
            .zip(some(info.computeInstanceId).map(ComputeInstanceId));
        let average = did.as_ref().map(|did| did.get(&info.pid).copied().unwrap_or_default());
        let idle = |percent: Option<u32>| percent.or(Some(0));
        found.entry((info.pid, instance)).or_insert(GpuProcess {
            pid: info.pid,
            instance,
            memory_bytes: Some(info.usedGpuMemory).filter(|bytes| *bytes != NOT_AVAILABLE),
            sm_percent: average.and_then(|average| idle(average.of(average.sm))),
            memory_percent: average.and_then(|average| idle(average.of(average.memory))),
        });
    }
    Ok(found.into_values().collect())
}

/// By process; None where the driver doesn't tell.
fn averages(
    nvml: &Nvml,
    device: &Device<'_>,
    since: SystemTime,
) -> Result<Option<BTreeMap<u32, Average>>, CallError> {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since_us = u64::try_from(since.as_micros()).unwrap_or(0);
    let samples = if_known(raw_processes::utilization(nvml, device, since_us))?;
    Ok(samples.map(|samples| {
        let mut did: BTreeMap<u32, Average> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.timeStamp > since_us) {
            let average = did.entry(sample.pid).or_default();
            average.samples += 1;
            average.sm += u64::from(sample.smUtil);
            average.memory += u64::from(sample.memUtil);
        }
        did
    }))
}
