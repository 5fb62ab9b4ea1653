//! Claims as the tests need them: the one recorded from a cluster, and variations.

use gpu_dra_cdi::{
    ContainerEdits, DeviceNode, DeviceType, Hook, HookName, Mount, Spec, SpecDevice, SpecError,
};
use gpu_dra_model::ids::{ClaimUid, DeviceName, DriverName};

pub(crate) fn driver() -> DriverName {
    DriverName::new("gpu.nvidia.com").unwrap()
}

pub(crate) fn claim() -> ClaimUid {
    ClaimUid::new("3f6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap()
}

pub(crate) fn claim_with_letter() -> ClaimUid {
    ClaimUid::new("af6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap()
}

/// The claim's spec, kept for good.
pub(crate) fn claim_spec(
    driver: &DriverName,
    claim: &ClaimUid,
    devices: &[SpecDevice],
    common: &ContainerEdits,
) -> Result<Spec<'static>, SpecError> {
    let common = Box::leak(Box::new(common.clone()));
    gpu_dra_cdi::claim_spec(driver, claim, devices.to_vec().leak(), common)
}

pub(crate) fn node(path: &str, major: u32, minor: u32) -> DeviceNode {
    DeviceNode {
        path: path.to_owned(),
        host_path: None,
        device_type: DeviceType::Char,
        major,
        minor,
        file_mode: Some(0o666),
        permissions: Some("rwm".to_owned()),
        uid: None,
        gid: None,
    }
}

pub(crate) fn mount(host: &str, container: &str) -> Mount {
    Mount {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).to_vec(),
        fs_type: None,
    }
}

pub(crate) fn gpu(minor: u32) -> SpecDevice {
    SpecDevice {
        device: DeviceName::new(format!("gpu-{minor}")).unwrap(),
        share: None,
        edits: ContainerEdits {
            device_nodes: vec![node(&format!("/dev/nvidia{minor}"), 195, minor)],
            ..ContainerEdits::default()
        },
    }
}

/// What the recorded claim of the incumbent has in common for all devices.
pub(crate) fn common() -> ContainerEdits {
    let lib = "/usr/lib64/libnvidia-ml.so.550.163.01";
    ContainerEdits {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
        device_nodes: vec![
            node("/dev/nvidiactl", 195, 255),
            node("/dev/nvidia-uvm", 510, 0),
            node("/dev/nvidia-uvm-tools", 510, 1),
        ],
        hooks: vec![Hook {
            hook_name: HookName::CreateContainer,
            path: "/var/lib/kubelet/plugins/gpu.nvidia.com/gpu-dra-hook".to_owned(),
            args: [
                "gpu-dra-hook",
                "create-links",
                "--link",
                "libnvidia-ml.so.550.163.01::/usr/lib64/libnvidia-ml.so.1",
            ]
            .map(str::to_owned)
            .to_vec(),
            env: Vec::new(),
            timeout: None,
        }],
        mounts: vec![
            mount(&format!("/run/nvidia/driver{lib}"), lib),
            mount("/run/nvidia/driver/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        ],
        additional_gids: Vec::new(),
    }
}
