//! `/proc` of the staged machine, as far as the NVIDIA driver and its users look at it.

use super::dev::{MAJOR_CAPS, MAJOR_DRM, MAJOR_NVIDIA, MAJOR_UVM};
use super::{StageError, Tree};
use crate::mig_proc;
use crate::node::{Gpu, Node};

pub(crate) fn write(tree: &Tree<'_>, node: &Node) -> Result<(), StageError> {
    tree.file("proc/devices", devices())?;
    tree.file("proc/driver/nvidia/version", version(node))?;
    tree.file("proc/driver/nvidia/params", PARAMS)?;
    for gpu in &node.gpus {
        let folder = format!("proc/driver/nvidia/gpus/{}", gpu.place.pci);
        tree.file(&format!("{folder}/information"), information(gpu))?;
    }
    if node.gpus.iter().any(|gpu| gpu.model.mig.is_some()) {
        let capabilities = "proc/driver/nvidia/capabilities/mig";
        tree.file(&format!("{capabilities}/config"), mig_proc::capability(1, 0o400))?;
        tree.file(&format!("{capabilities}/monitor"), mig_proc::capability(2, 0o444))?;
        let mut minors: Vec<_> = node.gpus.iter().map(|gpu| gpu.minor).collect();
        minors.sort_unstable();
        let text = mig_proc::mig_minors(&minors);
        tree.file("proc/driver/nvidia-caps/mig-minors", text)?;
    }
    mig_proc::new_boot_id(&tree.at("proc"))?;
    Ok(())
}

fn devices() -> String {
    format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n{MAJOR_NVIDIA} nvidia-frontend\n\
         {MAJOR_DRM} drm\n{MAJOR_CAPS} nvidia-caps\n{MAJOR_UVM} nvidia-uvm\n\n\
         Block devices:\n259 blkext\n"
    )
}

fn version(node: &Node) -> String {
    let driver = &node.driver.version;
    let machine = std::env::consts::ARCH;
    format!(
        "NVRM version: NVIDIA UNIX Open Kernel Module for {machine}  {driver}  Release Build  \
         (gpu-dra simulation)\nGCC version:  none, this driver is simulated\n"
    )
}

const PARAMS: &str = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n\
    DeviceFileGID: 0\nDeviceFileMode: 438\n";

fn information(gpu: &Gpu) -> String {
    let bios = gpu.model.vbios.as_deref().unwrap_or("??.??.??.??.??");
    format!(
        "Model: \t\t {}\nIRQ:   \t\t 0\nGPU UUID: \t {}\nVideo BIOS: \t {bios}\n\
         Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n\
         Bus Location: \t {}\nDevice Minor: \t {}\nGPU Excluded:\t No\n",
        gpu.model.name, gpu.uuid, gpu.place.pci, gpu.minor
    )
}
