//! What `/proc` and `/dev` show of MIG: capability files and the minors of their nodes.
//!
//! Follows every change of the hardware's state where `/proc` of the node can be seen; a
//! process in a container that sees the driver root alone changes the state and no more.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::identity;
use crate::node::Node;
use crate::stage::dev;
use crate::state::{GpuState, HardwareState};
use crate::state_dir::{StateError, io_error};

/// GPU instance ids of one GPU: 0 to 14.
const GPU_INSTANCES: u32 = 15;
/// Compute instance ids of one GPU instance: 0 to 7.
const COMPUTE_INSTANCES: u32 = 8;

/// The minor of a GPU instance's access node; that of compute instance C is 1 + C above it.
#[must_use]
pub fn gpu_instance_minor(gpu_minor: u32, gpu_instance: u32) -> u32 {
    3 + (GPU_INSTANCES * gpu_minor + gpu_instance) * (1 + COMPUTE_INSTANCES)
}

/// The text of `/proc/driver/nvidia-caps/mig-minors`.
pub(crate) fn mig_minors(gpu_minors: &[u32]) -> String {
    let mut text = String::from("config 1\nmonitor 2\n");
    for gpu in gpu_minors {
        for gi in 0..GPU_INSTANCES {
            let minor = gpu_instance_minor(*gpu, gi);
            text.push_str(&format!("gpu{gpu}/gi{gi}/access {minor}\n"));
            for ci in 0..COMPUTE_INSTANCES {
                text.push_str(&format!("gpu{gpu}/gi{gi}/ci{ci}/access {}\n", minor + 1 + ci));
            }
        }
    }
    text
}

/// The text of a capability file; the mode is 0400 or 0444.
pub(crate) fn capability(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

/// Everyone may open an instance's node.
const FOR_ALL: u32 = 0o444;

/// Writes and removes capability files and nodes as instances come and go.
pub(crate) fn follow(
    state_dir: &Path,
    node: &Node,
    before: &HardwareState,
    after: &HardwareState,
) -> Result<(), StateError> {
    let proc_root = state_dir.join(&node.proc_root);
    if !proc_root.is_dir() {
        return Ok(());
    }
    for (gpu, (old, new)) in node.gpus.iter().zip(before.gpus.iter().zip(&after.gpus)) {
        let (was, is) = (capabilities(gpu.minor, old), capabilities(gpu.minor, new));
        let base = proc_root.join(format!("driver/nvidia/capabilities/gpu{}/mig", gpu.minor));
        for (path, _) in was.iter().filter(|entry| !is.contains(entry)) {
            // The file of an instance and its folder, which others inside have left by now.
            let file = base.join(path);
            remove(fs::remove_file(&file), &file)?;
        }
        for instance in &old.instances {
            if new.instance(instance.id).is_err() {
                let folder = base.join(format!("gi{}", instance.id));
                remove(fs::remove_dir_all(&folder), &folder)?;
            }
        }
        for (path, minor) in is.iter().filter(|entry| !was.contains(entry)) {
            let file = base.join(path);
            write(&file, &capability(*minor, FOR_ALL))?;
            dev::make_capability(&state_dir.join(&node.dev_root), node, *minor)?;
        }
    }
    Ok(())
}

/// The capability files of a GPU's instances below its `mig` folder, with their minors.
fn capabilities(gpu_minor: u32, state: &GpuState) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    for instance in &state.instances {
        let minor = gpu_instance_minor(gpu_minor, instance.id);
        all.push((format!("gi{}/access", instance.id), minor));
        for compute in &instance.compute {
            let path = format!("gi{}/ci{}/access", instance.id, compute.id);
            all.push((path, minor + 1 + compute.id));
        }
    }
    all
}

fn write(file: &Path, text: &str) -> Result<(), StateError> {
    file.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(file, text))
        .map_err(|source| io_error("write", file, source))
}

fn remove(done: std::io::Result<()>, file: &Path) -> Result<(), StateError> {
    match done {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", file, source))
        }
        _ => Ok(()),
    }
}

/// A boot id that was never there before.
pub(crate) fn new_boot_id(proc_root: &Path) -> Result<(), StateError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = identity::uuid("boot", &std::process::id().to_string(), &now.as_nanos().to_string());
    write(&proc_root.join("sys/kernel/random/boot_id"), &format!("{id}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minors_are_those_of_real_files() {
        assert_eq!(gpu_instance_minor(0, 2), 21);
        assert_eq!(gpu_instance_minor(0, 0), 3);
        assert_eq!(gpu_instance_minor(1, 0), 138);
        let text = mig_minors(&[0, 1]);
        assert!(
            text.starts_with("config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n")
        );
        assert!(text.contains("gpu0/gi2/ci0/access 22\n"));
        assert!(text.contains("gpu1/gi0/access 138\n"));
        assert_eq!(text.lines().count(), 2 + 2 * 15 * 9);
    }
}
