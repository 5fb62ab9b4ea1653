//! What the node must have for claims to work, as far as its Node and the files of its container
//! runtime say: versions of the kubelet, the runtime and the kernel, and CDI.
//!
//! A shortfall keeps nothing from running: it is told, because what it leads to (containers that
//! don't start) is told far from its cause. Whether CDI is on is never asked through the
//! runtime's socket, which is as good as root on the node.

use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;

use crate::runtime_config::RuntimeConfig;

/// Major and minor.
type Version = (u32, u32);

/// The least kubelet: `resource.k8s.io/v1` and counters in slices of their own.
const KUBELET: Version = (1, 35);
/// The least kernel: `openat2`, which the container hook resolves paths with.
const KERNEL: Version = (5, 6);
/// containerd from which `enable_cdi` is on by default, and from which it exists.
const CONTAINERD: (Version, Version) = ((2, 0), (1, 7));
/// Where runtimes look for CDI specs unless they are told otherwise.
const CDI_SPEC_DIRS: [&str; 2] = ["/etc/cdi", "/run/cdi"];
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

/// Why CDI specs in `cdi_root` reach no container, as far as the runtime's version and its
/// configuration say; either may not be known.
#[must_use]
pub fn cdi(
    runtime_version: &str,
    config: Option<&RuntimeConfig>,
    cdi_root: &Path,
) -> Option<String> {
    let (name, number) = runtime_version.split_once("://").unwrap_or_default();
    let is = version(number);
    let is_containerd = name == "containerd";
    let is_off_by_default =
        is_containerd && is.is_some_and(|is| is >= CONTAINERD.1 && is < CONTAINERD.0);
    if is_off_by_default && config.is_none() {
        return Some(format!(
            "containerd {number} has CDI off unless its config has enable_cdi = true (of the CRI \
             plugin): if it hasn't, containers with GPUs won't start"
        ));
    }
    let config = config?;
    // CRI-O has no such switch; what is left of a containerd beside it is of no matter.
    match &config.enable_cdi {
        Some((false, file)) if is_containerd || name.is_empty() => {
            return Some(format!(
                "{} has enable_cdi = false: containers with GPUs won't start; set it to true and \
                 restart containerd",
                file.display()
            ));
        }
        None if is_off_by_default => {
            return Some(format!(
                "containerd {number} has CDI off, since its config has no enable_cdi: containers \
                 with GPUs won't start; set enable_cdi = true for the CRI plugin and restart it"
            ));
        }
        _ => {}
    }
    let root = resolved(&cdi_root.to_string_lossy());
    match &config.cdi_spec_dirs {
        Some((dirs, file)) if dirs.iter().all(|dir| resolved(dir) != root) => Some(format!(
            "cdi_spec_dirs of {} lacks {}: containers with GPUs won't start; add it there, or \
             give one of its folders as GPU_DRA_CDI_ROOT",
            file.display(),
            cdi_root.display()
        )),
        None if matches!(name, "containerd" | "cri-o")
            && CDI_SPEC_DIRS.iter().all(|dir| *dir != root) =>
        {
            Some(format!(
                "{name} looks for CDI specs in /etc/cdi and /var/run/cdi, not in {}: add it to \
                 cdi_spec_dirs of its config, or set GPU_DRA_CDI_ROOT to one of them",
                cdi_root.display()
            ))
        }
        _ => None,
    }
}

/// `/var/run` is `/run` on every host with a container runtime.
fn resolved(dir: &str) -> String {
    let dir = dir.trim_end_matches('/');
    dir.strip_prefix("/var/run/").map_or_else(|| dir.to_owned(), |rest| format!("/run/{rest}"))
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
            (2, "containerd://1.7.24", None),
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

    fn config(text: &str) -> RuntimeConfig {
        let mut config = RuntimeConfig::default();
        config.add(text, Path::new("/etc/containerd/config.toml"));
        config
    }

    /// Field report N35.
    #[test]
    fn n35_cdi_that_is_off_or_looks_elsewhere_is_said() {
        let ours = "/var/run/cdi";
        for (runtime, text, root, said) in [
            ("containerd://2.1.3", None, ours, None),
            ("containerd://1.7.24", None, ours, Some("if it hasn't, containers")),
            (
                "containerd://1.7.24",
                Some("version = 2"),
                ours,
                Some("its config has no enable_cdi"),
            ),
            ("containerd://1.7.24", Some("enable_cdi = true"), ours, None),
            (
                "containerd://1.7.24",
                Some("enable_cdi = false"),
                ours,
                Some("config.toml has enable_cdi = false"),
            ),
            ("containerd://2.1.3", Some("version = 3"), ours, None),
            ("containerd://2.1.3", Some("enable_cdi = false"), ours, Some("enable_cdi = false")),
            ("containerd://2.1.3", Some("cdi_spec_dirs = ['/run/cdi/']"), ours, None),
            ("containerd://2.1.3", Some("cdi_spec_dirs = ['/var/run/cdi']"), "/run/cdi", None),
            (
                "containerd://2.1.3",
                Some("cdi_spec_dirs = ['/etc/cdi']"),
                ours,
                Some("lacks /var/run/cdi"),
            ),
            ("containerd://2.1.3", Some("cdi_spec_dirs = ['/opt/cdi']"), "/opt/cdi", None),
            ("containerd://2.1.3", Some("version = 3"), "/opt/cdi", Some("not in /opt/cdi")),
            // Without a config nobody knows where it looks.
            ("containerd://2.1.3", None, "/opt/cdi", None),
            (
                "cri-o://1.30.1",
                Some("cdi_spec_dirs = ['/etc/cdi']"),
                ours,
                Some("lacks /var/run/cdi"),
            ),
            ("cri-o://1.30.1", Some("enable_cdi = false"), ours, None),
            ("isulad://2.1", Some("version = 3"), "/opt/cdi", None),
            // Nobody has asked the API server.
            ("", Some("enable_cdi = false"), ours, Some("enable_cdi = false")),
            ("", Some("version = 2"), ours, None),
            ("", None, ours, None),
        ] {
            let config = text.map(config);
            let found = cdi(runtime, config.as_ref(), Path::new(root));
            match said {
                None => assert_eq!(found, None, "{runtime} {text:?} {root}"),
                Some(part) => {
                    let found = found.unwrap_or_else(|| panic!("{runtime} {text:?} {root}"));
                    assert!(found.contains(part) && found.len() < 250, "{found}");
                }
            }
        }
    }
}
