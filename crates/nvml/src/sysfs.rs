//! What sysfs and procfs say about GPUs: PCIe root, NUMA node, the GPUs on the bus and those
//! bound to the driver. The rules are pure functions on text; the readers only read.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use gpu_dra_model::PciBusId;
use tracing::warn;

use crate::trees::Trees;

/// The PCIe root complex of a device, by the rule of `resource.kubernetes.io/pcieRoot`: the
/// target of the link `/sys/bus/pci/devices/<address>`, resolved as text, must lie below
/// `/sys/devices/pci…` and end with the device's own address. None where it doesn't, as on
/// platforms that hang PCI below something else (Hyper-V).
#[must_use]
pub fn pcie_root(address: &PciBusId, link: &str) -> Option<String> {
    let mut path: Vec<&str> =
        if link.starts_with('/') { vec![] } else { vec!["sys", "bus", "pci", "devices"] };
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            name => path.push(name),
        }
    }
    match path.as_slice() {
        ["sys", "devices", root, .., last]
            if root.starts_with("pci") && *last == address.as_str() =>
        {
            Some((*root).to_owned())
        }
        _ => None,
    }
}

/// The NUMA node by the text of `numa_node`; the kernel writes -1 where there is none.
fn numa_node(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Reads the PCIe root of a device. Absent, with a warning, if sysfs can't be read.
pub(crate) fn read_pcie_root(trees: &Trees, address: &PciBusId) -> Option<String> {
    let path = trees.sysfs.join("bus/pci/devices").join(address.as_str());
    match fs::read_link(&path) {
        Ok(link) => pcie_root(address, &link.to_string_lossy()),
        Err(error) => {
            warn!(path = %path.display(), %error, "PCIe root unknown, attribute left out");
            None
        }
    }
}

/// Reads the NUMA node of a device. Absent, with a warning, if sysfs can't be read.
pub(crate) fn read_numa_node(trees: &Trees, address: &PciBusId) -> Option<u32> {
    let path = trees.sysfs.join("bus/pci/devices").join(address.as_str()).join("numa_node");
    match fs::read_to_string(&path) {
        Ok(text) => numa_node(&text),
        Err(error) => {
            warn!(path = %path.display(), %error, "NUMA node unknown, attribute left out");
            None
        }
    }
}

/// How many NVIDIA GPUs are on the PCI bus, whichever driver has them: vendor 10de and a
/// display class (03xxxx).
pub(crate) fn gpus_on_bus(trees: &Trees) -> usize {
    let Ok(devices) = fs::read_dir(trees.sysfs.join("bus/pci/devices")) else { return 0 };
    devices
        .filter_map(Result::ok)
        .filter(|device| {
            let starts = |file: &str, prefix: &str| {
                fs::read_to_string(device.path().join(file)).is_ok_and(|t| t.starts_with(prefix))
            };
            starts("vendor", "0x10de") && starts("class", "0x03")
        })
        .count()
}

/// The PCI addresses that the kernel driver has bound, from `/proc/driver/nvidia/gpus`: one
/// folder listing tells that a GPU came or went, which an open NVML session may not see.
/// Empty where procfs doesn't show them.
pub(crate) fn bound_gpus(trees: &Trees) -> BTreeSet<String> {
    match fs::read_dir(trees.proc.join("driver/nvidia/gpus")) {
        Ok(gpus) => gpus
            .filter_map(Result::ok)
            .map(|gpu| gpu.file_name().to_string_lossy().into_owned())
            .collect(),
        Err(_) => BTreeSet::new(),
    }
}

/// Whether the kernel driver is loaded, and its version where that can be read from
/// `/proc/driver/nvidia/version`.
pub(crate) fn kernel_driver(trees: &Trees) -> KernelDriver {
    match fs::read_to_string(trees.proc.join("driver/nvidia/version")) {
        Ok(text) => KernelDriver::Loaded { version: kernel_version(&text) },
        Err(error) if error.kind() == io::ErrorKind::NotFound => KernelDriver::Absent,
        Err(_) => KernelDriver::Loaded { version: None },
    }
}

/// The state of the nvidia kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KernelDriver {
    Absent,
    Loaded { version: Option<String> },
}

/// The version in the first line, `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15
/// Tue …`; the open modules word it differently, so take the first word that looks like one.
fn kernel_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Whether the device nodes of GPUs (`nvidia0` and on) are there.
pub(crate) fn has_gpu_nodes(trees: &Trees) -> bool {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    fs::read_dir(&trees.dev).is_ok_and(|nodes| {
        nodes.filter_map(Result::ok).any(|node| node.file_name().to_str().is_some_and(is_gpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_root_follows_the_kubernetes_rule() {
        let address = PciBusId::new("0000:3b:00.0").unwrap();
        for (link, root) in [
            ("../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", Some("pci0000:3a")),
            (
                "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:3b:00.0",
                Some("pci0000:00"),
            ),
            ("/sys/devices/pci0000:00/0000:3b:00.0", Some("pci0000:00")),
            ("../../../devices/pci10000:00/0000:3b:00.0", Some("pci10000:00")),
            // another device's link, no device below the root, too few levels up
            ("../../../devices/pci0000:00/0000:00:01.0/0000:3c:00.0", None),
            ("../../../devices/pci0000:00", None),
            ("../devices/pci0000:00/0000:3b:00.0", None),
            // Hyper-V
            (
                "../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/4711/pci0000:00/0000:3b:00.0",
                None,
            ),
            ("", None),
            ("../../../../../../../../..", None),
        ] {
            assert_eq!(pcie_root(&address, link).as_deref(), root, "{link}");
        }
    }

    #[test]
    fn numa_node_minus_one_is_none() {
        for (text, node) in [("0\n", Some(0)), ("1", Some(1)), ("-1\n", None), ("", None)] {
            assert_eq!(numa_node(text), node);
        }
    }

    #[test]
    fn kernel_version_in_both_wordings() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0\n",
                Some("550.54.15"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder@U22)\n",
                Some("570.124.06"),
            ),
            ("nonsense\n1.2", None),
            ("", None),
        ] {
            assert_eq!(kernel_version(text).as_deref(), version);
        }
    }
}
