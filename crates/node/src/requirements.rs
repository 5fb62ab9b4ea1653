//! What the node must have for claims to work, as far as its Node says: versions of the kubelet,
//! the container runtime and the kernel.
//!
//! A shortfall keeps nothing from running: it is told, because what it leads to (containers that
//! don't start) is told far from its cause. Whether CDI is on can't be asked without the
//! runtime's socket, which is as good as root on the node; its version says it for most.

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// Major and minor.
type Version = (u32, u32);

/// The least kubelet: `resource.k8s.io/v1` and counters in slices of their own.
const KUBELET: Version = (1, 35);
/// The least kernel: `openat2`, which the container hook resolves paths with.
const KERNEL: Version = (5, 6);
/// containerd from which `enable_cdi` is on by default, and from which it exists.
const CONTAINERD: (Version, Version) = ((2, 0), (1, 7));
/// CRI-O from which the kubelet's CDI devices (CRI's `CDIDevices`) are injected.
const CRIO: Version = (1, 27);

/// What falls short, each in a sentence.
#[must_use]
pub fn shortfalls(info: &NodeSystemInfo) -> Vec<String> {
    let older = |text: &str, least: Version| version(text).is_some_and(|is| is < least);
    let mut said = Vec::new();
    if older(&info.kubelet_version, KUBELET) {
        said.push(format!(
            "kubelet {} is older than {}.{}, the least for this driver: upgrade the node",
            info.kubelet_version, KUBELET.0, KUBELET.1
        ));
    }
    if older(&info.kernel_version, KERNEL) {
        said.push(format!(
            "Linux {} is older than {}.{}: containers with GPUs won't start",
            info.kernel_version, KERNEL.0, KERNEL.1
        ));
    }
    said.extend(runtime(&info.container_runtime_version));
    said
}

/// What is wrong with `containerd://1.7.24` and the like; nothing with a runtime not known here.
fn runtime(text: &str) -> Option<String> {
    let (name, number) = text.split_once("://")?;
    let is = version(number);
    match name {
        "containerd" if is? < CONTAINERD.1 => Some(format!(
            "containerd {number} knows no CDI: containers with GPUs won't start; use 2.0 or newer"
        )),
        "containerd" if is? < CONTAINERD.0 => Some(format!(
            "containerd {number} has CDI off unless its config has enable_cdi = true (of the CRI \
             plugin): if it hasn't, containers with GPUs won't start"
        )),
        "cri-o" if is? < CRIO => Some(format!(
            "CRI-O {number} doesn't inject the kubelet's CDI devices: use {}.{} or newer",
            CRIO.0, CRIO.1
        )),
        "docker" => Some(
            "cri-dockerd doesn't inject CDI devices: containers with GPUs won't start; use \
             containerd 2.0 or CRI-O"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The first two numbers of `v1.36.3`, `2.1.0-rc.1`, `6.1.0-44-amd64`.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_or_has_cdi_off_is_said() {
        let good = ["v1.36.3", "6.1.0-44-amd64", "containerd://2.4.2"];
        let table: [(usize, &str, Option<&str>); 20] = [
            (0, "v1.35.0", None),
            (0, "v1.36.3-gke.100", None),
            (0, "v1.34.9+k3s1", Some("kubelet v1.34.9+k3s1 is older than 1.35")),
            (0, "", None),
            (1, "5.4.0-200-generic", Some("Linux 5.4.0-200-generic is older than 5.6")),
            (1, "5.6.0", None),
            (1, "5.14.0-427.el9.x86_64", None),
            (2, "containerd://2.0.0", None),
            (2, "containerd://v2.1.3-k3s1", None),
            (2, "containerd://2.1.0-rc.1", None),
            (2, "containerd://1.7.24", Some("enable_cdi = true")),
            (2, "containerd://1.6.36", Some("containerd 1.6.36 knows no CDI")),
            (2, "containerd://unknown", None),
            (2, "cri-o://1.30.1", None),
            (2, "cri-o://1.27.0", None),
            (2, "cri-o://1.26.4", Some("CRI-O 1.26.4 doesn't")),
            (2, "docker://28.0.1", Some("cri-dockerd")),
            (2, "isulad://2.1", None),
            (2, "containerd", None),
            (2, "", None),
        ];
        for (field, text, expected) in table {
            let mut values = good.map(str::to_owned);
            values[field] = text.to_owned();
            let [kubelet_version, kernel_version, container_runtime_version] = values;
            let info = NodeSystemInfo {
                kubelet_version,
                kernel_version,
                container_runtime_version,
                ..NodeSystemInfo::default()
            };
            let said = shortfalls(&info);
            match expected {
                None => assert_eq!(said, [""; 0], "{text}"),
                Some(part) => {
                    assert!(said.len() == 1 && said[0].contains(part), "{text}: {said:?}");
                }
            }
        }
    }
}
