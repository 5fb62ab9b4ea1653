//! The pod that a process runs in, by its `/proc/PID/cgroup`: of cgroup v1 and v2, of the
//! kubelet's systemd and cgroupfs drivers, as seen from any cgroup namespace.

use std::fmt;

/// The UID of a pod, as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(Box<str>);

impl PodUid {
    /// A UID, or the hash that a static pod has in place of one; None for anything else.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
        let is_uuid = || {
            let lengths = text.split('-').map(|part| if is_hex(part) { part.len() } else { 0 });
            lengths.eq([8, 4, 4, 4, 12])
        };
        ((text.len() == 32 && is_hex(text)) || is_uuid()).then(|| Self(text.into()))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The pods that the process of this `/proc/PID/cgroup` is in, the outermost first. There are
/// several where a pod runs a kubelet of its own; none for a process of the host.
///
/// The kubelet's folders are `pod<uid>` with the cgroupfs driver, and with systemd's
/// `kubepods-<QoS>-pod<uid>.slice` with `_` for `-`; what stands before is its own
/// `--cgroup-root`.
#[must_use]
pub fn pods_of(cgroup: &str) -> Vec<PodUid> {
    let mut pods = Vec::new();
    for line in cgroup.lines() {
        // hierarchy:controllers:path
        let Some(path) = line.splitn(3, ':').nth(2) else { continue };
        // A runtime without systemd takes systemd's `slice:prefix:name` for a folder's name.
        for pod in path.split(['/', ':']).filter_map(pod_of_folder) {
            if !pods.contains(&pod) {
                pods.push(pod);
            }
        }
    }
    pods
}

fn pod_of_folder(name: &str) -> Option<PodUid> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.rsplit_once("-pod")?.1,
    };
    PodUid::new(&uid.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "8dbc5577-d0e2-4706-8787-57d52c03ddf2";
    const B: &str = "0f6c1f3a-2b7e-4c55-9d1f-000000000001";

    fn found(cgroup: &str) -> Vec<String> {
        pods_of(cgroup).iter().map(PodUid::to_string).collect()
    }

    #[test]
    fn the_pod_is_found_in_every_form() {
        let id = "1f".repeat(32);
        let (a, b) = (A.replace('-', "_"), B.replace('-', "_"));
        let of_a = [
            // cgroup v2, systemd driver: containerd, CRI-O, guaranteed pods.
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{a}.slice/cri-containerd-{id}.scope\n"
            ),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{a}.slice/crio-{id}.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-pod{a}.slice/cri-containerd-{id}.scope\n"),
            // CRI-O with a cgroup of the container's own below, and systemd in the container.
            format!(
                "0::/kubepods.slice/kubepods-pod{a}.slice/crio-{id}.scope/container/init.scope\n"
            ),
            // cgroupfs driver.
            format!("0::/kubepods/besteffort/pod{A}/{id}\n"),
            format!("0::/kubepods/pod{A}/{id}\n"),
            // The kubelet with the systemd driver, the runtime without.
            format!(
                "0::/system.slice/containerd.service/kubepods-burstable-pod{a}.slice:cri-containerd:{id}\n"
            ),
            // cgroup v1, both drivers, one line a controller, some of them elsewhere.
            format!(
                "12:memory:/kubepods/burstable/pod{A}/{id}\n11:devices:/kubepods/burstable/pod{A}/{id}\n1:name=systemd:/kubepods/burstable/pod{A}/{id}\n0::/\n"
            ),
            format!("4:cpu,cpuacct:/kubepods.slice/kubepods-pod{a}.slice/docker-{id}.scope\n"),
            // From within another cgroup namespace.
            format!(
                "0::/../../kubepods-besteffort.slice/kubepods-besteffort-pod{a}.slice/cri-containerd-{id}.scope\n"
            ),
            format!("0::/../../pod{A}/{id}\n"),
            // kind, k3s in a container, a --cgroup-root of its own.
            format!(
                "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{a}.slice/cri-containerd-{id}.scope\n"
            ),
            format!("0::/docker/{id}/kubelet/kubepods/besteffort/pod{A}/{id}\n"),
        ];
        for cgroup in &of_a {
            assert_eq!(found(cgroup), [A], "{cgroup}");
        }
        // A kubelet within a pod.
        let nested = format!(
            "0::/kubepods.slice/kubepods-pod{a}.slice/cri-containerd-{id}.scope/kubelet.slice/kubelet-kubepods-pod{b}.slice/cri-containerd-{id}.scope\n"
        );
        assert_eq!(found(&nested), [A, B]);
        let static_pod = "5a".repeat(16);
        assert_eq!(found(&format!("0::/kubepods/burstable/pod{static_pod}/{id}\n")), [static_pod]);
    }

    #[test]
    fn what_is_no_pod_is_none() {
        let id = "1f".repeat(32);
        for cgroup in [
            "",
            "0::/",
            "0::/\n1",
            "0::/init.scope",
            "0::/system.slice/nvidia-persistenced.service",
            "0::/user.slice/user-1000.slice/session-2.scope",
            "0::/kubepods.slice/kubepods-burstable.slice",
            "0::/kubepods/podinfo/x",
            "0::/kubepods-pod.slice",
            "0::/kubepods/pod8dbc5577-d0e2-4706-8787-57d52c03ddf",
            "0::/kubepods/pod8dbc5577-d0e2-4706-8787-57d52c03ddfx",
            &format!("0::/machine.slice/libpod-{id}.scope/container"),
            &format!("0::/machine.slice/machine-libpod_pod_{id}.slice/libpod-{id}.scope"),
            &format!("0::/docker/{id}"),
        ] {
            assert_eq!(found(cgroup), Vec::<String>::new(), "{cgroup}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(cgroup in "([0-9a-fp_:/.é-]|pod|slice|\n){0,80}") {
            for pod in pods_of(&cgroup) {
                prop_assert!(PodUid::new(pod.as_str()).is_some());
            }
        }
    }
}
