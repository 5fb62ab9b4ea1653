//! Which claim's pod a process on a GPU belongs to: by its pod, which the cgroup says, and by
//! the device, which the claim holds. What matches no claim is summed by GPU.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::{ClaimRef, ComputeInstanceId, DeviceName, GpuInstanceId, GpuUuid};

use crate::cgroup::PodUid;

/// A MIG device by NVML's numbers.
type Instance = (GpuInstanceId, ComputeInstanceId);

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The physical GPU.
    pub gpu: GpuUuid,
    /// The MIG device that it runs on; None for the whole GPU.
    pub instance: Option<Instance>,
    /// The pods that it is in, the outermost first.
    pub pods: Vec<PodUid>,
    /// What it uses; its own number of processes is 1.
    pub load: Load,
}

/// A pod that uses a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its UID.
    pub uid: PodUid,
    /// Its name, in the claim's namespace.
    pub name: String,
}

/// A device that a claim holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The claim.
    pub claim: ClaimRef,
    /// The claim's pods, as far as they are known.
    pub pods: Vec<Pod>,
    /// The device's name in the pool.
    pub device: DeviceName,
    /// The physical GPU behind it.
    pub gpu: GpuUuid,
    /// The MIG device that it is; None for the whole GPU, or a share of it.
    pub instance: Option<Instance>,
    /// Held for monitoring: the process is rather another claim's, if one of the pod has it.
    pub admin: bool,
}

impl Held {
    fn is_under(&self, process: &Process) -> bool {
        self.gpu == process.gpu && (self.instance.is_none() || self.instance == process.instance)
    }

    fn pod(&self, process: &Process) -> Option<&Pod> {
        self.pods.iter().find(|pod| process.pods.contains(&pod.uid))
    }
}

/// What is used of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Processes.
    pub processes: u32,
    /// Memory, in bytes; what the driver doesn't say counts as nothing.
    pub memory_bytes: u64,
    /// Part of the time in which something was computed, in per cent; None where the driver
    /// doesn't say, as in MIG mode.
    pub sm_percent: Option<u32>,
    /// Part of the time in which memory was read or written, in per cent.
    pub memory_percent: Option<u32>,
}

impl Load {
    fn add(&mut self, other: Self) {
        // Samples of several processes overlap a little.
        let sum = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b).min(100)),
            (a, b) => a.or(b),
        };
        self.processes = self.processes.saturating_add(other.processes);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.sm_percent = sum(self.sm_percent, other.sm_percent);
        self.memory_percent = sum(self.memory_percent, other.memory_percent);
    }
}

/// What one pod of a claim can use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The claim's namespace, and its pods'.
    pub namespace: String,
    /// The claim's name.
    pub claim: String,
    /// The pod's name; empty where no pod of the claim is known.
    pub pod: String,
    /// The device's name in the pool.
    pub device: DeviceName,
    /// The physical GPU.
    pub gpu: GpuUuid,
    /// The MIG device; None for the whole GPU.
    pub instance: Option<Instance>,
}

impl Row {
    fn of(held: &Held, pod: Option<&Pod>) -> Self {
        Self {
            namespace: held.claim.namespace.clone(),
            claim: held.claim.name.clone(),
            pod: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            device: held.device.clone(),
            gpu: held.gpu.clone(),
            instance: held.instance,
        }
    }
}

/// Who uses what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// By claim, pod and device, also of those that use nothing.
    pub claims: BTreeMap<Row, Load>,
    /// By GPU, of processes of no claim: the host's, an MPS server's, or of pods that aren't
    /// known yet.
    pub unclaimed: BTreeMap<GpuUuid, Load>,
    /// Rows that would have been too many.
    pub left_out: usize,
}

/// Finds each process's claim. There are `most` rows at most.
///
/// A pod with several claims on one GPU, such as two shares, has all its processes counted
/// with the first: nothing tells them apart.
#[must_use]
pub fn attribute(processes: &[Process], held: &[Held], most: usize) -> Usage {
    let mut usage = Usage::default();
    for device in held {
        let known = device.pods.iter().map(Some);
        let none = device.pods.is_empty().then_some(None);
        for pod in known.chain(none) {
            usage.claims.entry(Row::of(device, pod)).or_insert(IDLE);
        }
    }
    for process in processes {
        let candidates = held.iter().filter(|device| device.is_under(process));
        let users = candidates.filter_map(|device| Some((device, device.pod(process)?)));
        match users.min_by_key(|(device, _)| device.admin) {
            Some((device, pod)) => {
                usage.claims.entry(Row::of(device, Some(pod))).or_default().add(process.load);
            }
            None => usage.unclaimed.entry(process.gpu.clone()).or_default().add(process.load),
        }
    }
    while usage.claims.len() > most {
        usage.claims.pop_last();
        usage.left_out += 1;
    }
    usage
}

/// Nothing runs there.
const IDLE: Load = Load { processes: 0, memory_bytes: 0, sm_percent: None, memory_percent: None };

/// The claims of which pods may have come since they were looked at: a process of a pod that
/// isn't known runs on what they hold.
#[must_use]
pub fn unknown_to<'h>(processes: &[Process], held: &'h [Held]) -> BTreeSet<&'h ClaimRef> {
    let strangers = processes.iter().filter(|process| {
        let known = |device: &Held| device.is_under(process) && device.pod(process).is_some();
        !process.pods.is_empty() && !held.iter().any(known)
    });
    strangers
        .flat_map(|process| held.iter().filter(|device| device.is_under(process)))
        .map(|device| &device.claim)
        .collect()
}

#[cfg(test)]
mod tests {
    use gpu_dra_model::ClaimUid;

    use super::*;

    fn uid(n: u32) -> PodUid {
        PodUid::new(&format!("8dbc5577-d0e2-4706-8787-{n:012x}")).unwrap()
    }

    fn gpu(n: u32) -> GpuUuid {
        GpuUuid::new(format!("GPU-11111111-0000-0000-0000-{n:012x}")).unwrap()
    }

    /// A claim whose pods are called by their numbers.
    fn held(claim: &str, device: &str, on: u32, pods: &[u32]) -> Held {
        Held {
            claim: ClaimRef {
                uid: ClaimUid::new("0f6c1f3a-2b7e-4c55-9d1f-000000000001").unwrap(),
                namespace: "team-a".to_owned(),
                name: claim.to_owned(),
            },
            pods: pods.iter().map(|n| Pod { uid: uid(*n), name: format!("pod-{n}") }).collect(),
            device: DeviceName::new(device).unwrap(),
            gpu: gpu(on),
            instance: None,
            admin: false,
        }
    }

    fn mig(n: u32) -> Option<Instance> {
        Some((GpuInstanceId(n), ComputeInstanceId(0)))
    }

    fn process(on: u32, pods: &[u32], memory_bytes: u64) -> Process {
        Process {
            gpu: gpu(on),
            instance: None,
            pods: pods.iter().map(|n| uid(*n)).collect(),
            load: Load { processes: 1, memory_bytes, sm_percent: Some(60), memory_percent: None },
        }
    }

    /// `claim/pod/device: processes x bytes`.
    fn told(usage: &Usage) -> Vec<String> {
        let of = |(row, load): (&Row, &Load)| {
            let Row { claim, pod, device, .. } = row;
            format!("{claim}/{pod}/{device}: {}x{}", load.processes, load.memory_bytes)
        };
        let nobody = |(gpu, load): (&GpuUuid, &Load)| {
            let gpu = gpu.as_str().trim_start_matches("GPU-11111111-0000-0000-0000-00000000000");
            format!("{gpu}: {}x{}", load.processes, load.memory_bytes)
        };
        usage.claims.iter().map(of).chain(usage.unclaimed.iter().map(nobody)).collect()
    }

    #[test]
    fn a_process_is_its_pods_on_the_device_that_the_claim_holds() {
        let claims = [held("train", "gpu-0", 0, &[1, 2]), held("serve", "gpu-1", 1, &[3])];
        let processes = [
            process(0, &[1], 100),
            process(0, &[1], 50),
            // The claim's pod, on a GPU that the claim doesn't hold.
            process(1, &[2], 7),
            // The host's, and another pod's.
            process(1, &[], 5),
            process(2, &[9], 3),
        ];
        let usage = attribute(&processes, &claims, 100);
        assert_eq!(
            told(&usage),
            [
                "serve/pod-3/gpu-1: 0x0",
                "train/pod-1/gpu-0: 2x150",
                "train/pod-2/gpu-0: 0x0",
                "1: 2x12",
                "2: 1x3"
            ]
        );
        let busy = usage.claims.values().max_by_key(|load| load.processes).unwrap();
        assert_eq!((busy.sm_percent, busy.memory_percent), (Some(100), None));
    }

    #[test]
    fn shares_of_one_gpu_are_told_apart_by_their_pods() {
        let claims = [held("a", "gpu-0", 0, &[1]), held("b", "gpu-0", 0, &[2])];
        let usage = attribute(&[process(0, &[2], 8), process(0, &[1], 4)], &claims, 100);
        assert_eq!(told(&usage), ["a/pod-1/gpu-0: 1x4", "b/pod-2/gpu-0: 1x8"]);
    }

    #[test]
    fn mig_devices_of_one_gpu_are_told_apart_by_instance() {
        let part = |claim, n, pod: &[u32]| Held {
            instance: mig(n),
            ..held(claim, &format!("gpu-0-mig-{n}"), 0, pod)
        };
        // One pod with two instances, each in a claim.
        let claims = [part("a", 7, &[1]), part("b", 9, &[1])];
        let on = |n, memory| Process { instance: mig(n), ..process(0, &[1], memory) };
        let usage = attribute(&[on(7, 5), on(9, 6), on(11, 1)], &claims, 100);
        assert_eq!(
            told(&usage),
            ["a/pod-1/gpu-0-mig-7: 1x5", "b/pod-1/gpu-0-mig-9: 1x6", "0: 1x1"]
        );
        // A process without instance is on no MIG device.
        assert_eq!(told(&attribute(&[process(0, &[1], 2)], &claims, 100))[2], "0: 1x2");
    }

    #[test]
    fn who_only_watches_is_not_who_uses() {
        let watcher = Held { admin: true, ..held("a-watch", "gpu-0", 0, &[1]) };
        let claims = [watcher, held("train", "gpu-0", 0, &[1])];
        let usage = attribute(&[process(0, &[1], 9)], &claims, 100);
        assert_eq!(told(&usage), ["a-watch/pod-1/gpu-0: 0x0", "train/pod-1/gpu-0: 1x9"]);
        let alone = attribute(&[process(0, &[1], 9)], &claims[..1], 100);
        assert_eq!(told(&alone), ["a-watch/pod-1/gpu-0: 1x9"], "a monitor may compute too");
    }

    #[test]
    fn a_kubelet_in_a_pod_is_no_riddle() {
        for pods in [[1, 5], [5, 1]] {
            let usage = attribute(&[process(0, &pods, 3)], &[held("a", "gpu-0", 0, &[1])], 9);
            assert_eq!(told(&usage), ["a/pod-1/gpu-0: 1x3"]);
        }
    }

    #[test]
    fn rows_are_bounded_and_what_is_left_out_is_counted() {
        let pods: Vec<_> = (0..50).collect();
        let claims = [held("a", "gpu-0", 0, &pods)];
        let usage = attribute(&[], &claims, 20);
        assert_eq!((usage.claims.len(), usage.left_out), (20, 30));
        // A claim that was made anew while the old one is still held gives no second row.
        let twice = [held("a", "gpu-0", 0, &[1]), held("a", "gpu-0", 0, &[1])];
        assert_eq!(attribute(&[], &twice, 20).claims.len(), 1);
    }

    #[test]
    fn claims_are_looked_at_again_for_pods_that_nobody_knows() {
        let claims =
            [held("a", "gpu-0", 0, &[1]), held("b", "gpu-0", 0, &[]), held("c", "gpu-1", 1, &[])];
        let names = |processes: &[Process]| -> Vec<String> {
            unknown_to(processes, &claims).iter().map(|claim| claim.name.clone()).collect()
        };
        assert_eq!(names(&[process(0, &[1], 1)]), Vec::<String>::new());
        assert_eq!(names(&[process(0, &[], 1)]), Vec::<String>::new(), "of the host");
        assert_eq!(names(&[process(2, &[7], 1)]), Vec::<String>::new(), "nobody holds the GPU");
        assert_eq!(names(&[process(0, &[7], 1)]), ["a", "b"]);
    }
}
