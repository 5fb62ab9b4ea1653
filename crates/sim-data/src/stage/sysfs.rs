//! `/sys` of the staged machine: PCI devices behind their roots, NUMA nodes, the module.

use std::collections::BTreeSet;

use super::dev::drm_names;
use super::{StageError, Tree};
use crate::node::{Gpu, Node};
use crate::topology::PciAddress;

/// CPUs of each NUMA node; nothing here depends on the number.
const CPUS: u32 = 32;

pub(crate) fn write(tree: &Tree<'_>, node: &Node) -> Result<(), StageError> {
    tree.folder("sys/bus/pci/drivers/nvidia")?;
    tree.file("sys/module/nvidia/version", format!("{}\n", node.driver.version))?;
    for (gpu, drm) in node.gpus.iter().zip(0..) {
        gpu_device(tree, gpu, drm)?;
    }
    numa_nodes(tree, node)
}

/// The folder of a device below its bridges, seen from `sys`.
fn device_path(root: &str, chain: &[PciAddress], own: PciAddress) -> String {
    let bridges: String = chain.iter().map(|bridge| format!("{bridge}/")).collect();
    format!("devices/{root}/{bridges}{own}")
}

fn gpu_device(tree: &Tree<'_>, gpu: &Gpu, drm: u32) -> Result<(), StageError> {
    let place = &gpu.place;
    let numa = place.numa_node;
    for (nth, bridge) in place.bridges.iter().enumerate() {
        let above = place.bridges.get(..nth).unwrap_or_default();
        let path = device_path(&place.pcie_root, above, *bridge);
        pci_files(tree, &path, ("10b5", "8747", "060400"), numa)?;
        tree.link(&format!("sys/bus/pci/devices/{bridge}"), &format!("../../../{path}"))?;
    }
    let path = device_path(&place.pcie_root, &place.bridges, place.pci);
    let ids = &gpu.model.pci;
    let (device, class) = (format!("{:04x}", ids.device.0), format!("{:06x}", ids.class.0));
    pci_files(tree, &path, ("10de", &device, &class), numa)?;
    let file = |name: &str, text: String| tree.file(&format!("sys/{path}/{name}"), text);
    file("subsystem_vendor", "0x10de\n".to_owned())?;
    file("subsystem_device", format!("0x{:04x}\n", ids.subsystem.0))?;
    file("local_cpulist", format!("{}\n", cpus(numa)))?;
    file(
        "modalias",
        format!(
            "pci:v000010DEd{:08X}sv000010DEsd{:08X}bc03sc{}i00\n",
            ids.device.0,
            ids.subsystem.0,
            class.get(2..4).unwrap_or("00")
        ),
    )?;
    let (card, render) = drm_names(drm);
    tree.folder(&format!("sys/{path}/drm/{card}"))?;
    tree.folder(&format!("sys/{path}/drm/{render}"))?;
    // Up from the device's folder to `sys`.
    let up = "../".repeat(path.split('/').count());
    tree.link(&format!("sys/{path}/driver"), &format!("{up}bus/pci/drivers/nvidia"))?;
    tree.link(&format!("sys/bus/pci/devices/{}", place.pci), &format!("../../../{path}"))?;
    tree.link(&format!("sys/bus/pci/drivers/nvidia/{}", place.pci), &format!("../../../../{path}"))
}

fn pci_files(
    tree: &Tree<'_>,
    path: &str,
    (vendor, device, class): (&str, &str, &str),
    numa: i32,
) -> Result<(), StageError> {
    for (name, text) in [
        ("vendor", format!("0x{vendor}\n")),
        ("device", format!("0x{device}\n")),
        ("class", format!("0x{class}\n")),
        ("numa_node", format!("{numa}\n")),
    ] {
        tree.file(&format!("sys/{path}/{name}"), text)?;
    }
    Ok(())
}

fn numa_nodes(tree: &Tree<'_>, node: &Node) -> Result<(), StageError> {
    let of_cpus: BTreeSet<i32> = node.gpus.iter().map(|gpu| gpu.place.numa_node.max(0)).collect();
    let of_gpus = node.gpus.iter().filter_map(|gpu| gpu.place.memory_numa_node);
    for numa in &of_cpus {
        let file = format!("sys/devices/system/node/node{numa}/cpulist");
        tree.file(&file, format!("{}\n", cpus(*numa)))?;
    }
    for numa in of_gpus {
        tree.file(&format!("sys/devices/system/node/node{numa}/cpulist"), "\n")?;
    }
    Ok(())
}

fn cpus(numa: i32) -> String {
    let first = u32::try_from(numa).unwrap_or(0) * CPUS;
    format!("{first}-{}", first + CPUS - 1)
}
