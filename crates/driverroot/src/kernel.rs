//! The numbers that the kernel gave the driver, from `/proc/devices`, and the driver's
//! rules for its device files, from `/proc/driver/nvidia`: `params` for all of them,
//! `capabilities/…/access` for one that stands for a capability.

/// `/dev/nvidia<N>`, `nvidiactl` and `nvidia-modeset` have this major number, assigned to
/// NVIDIA for good (the kernel's `devices.txt`).
pub(crate) const NVIDIA_MAJOR: u32 = 195;
pub(crate) const NVIDIACTL_MINOR: u32 = 255;
pub(crate) const MODESET_MINOR: u32 = 254;

/// The major number of a character driver, by any of its names.
pub(crate) fn char_major(proc_devices: &str, names: &[&str]) -> Option<u32> {
    proc_devices
        .lines()
        .skip_while(|line| !line.starts_with("Character devices"))
        .skip(1)
        .take_while(|line| !line.starts_with("Block devices"))
        .find_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            if names.contains(&name.trim()) { major.parse().ok() } else { None }
        })
}

/// How the driver wants its device files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceFileRules {
    /// Whether programs may make and change them (`NVreg_ModifyDeviceFiles`).
    pub(crate) modify: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

impl Default for DeviceFileRules {
    /// The driver's own defaults.
    fn default() -> Self {
        Self { modify: true, uid: 0, gid: 0, mode: 0o666 }
    }
}

/// Reads the driver's parameters; what isn't said keeps its default.
pub(crate) fn device_file_rules(params: &str) -> DeviceFileRules {
    let mut rules = DeviceFileRules::default();
    for (name, value) in numbers(params) {
        match name {
            "ModifyDeviceFiles" => rules.modify = value != 0,
            "DeviceFileUID" => rules.uid = value,
            "DeviceFileGID" => rules.gid = value,
            "DeviceFileMode" => rules.mode = value & 0o777,
            _ => {}
        }
    }
    rules
}

/// The device file that stands for a capability: who may open it has the capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) minor: u32,
    pub(crate) mode: u32,
    /// Whether programs may make and change the file.
    pub(crate) modify: bool,
}

/// Reads a capability's file; `None` where it doesn't say minor and mode.
pub(crate) fn capability(text: &str) -> Option<Capability> {
    let (mut minor, mut mode, mut modify) = (None, None, true);
    for (name, value) in numbers(text) {
        match name {
            "DeviceFileMinor" => minor = Some(value),
            "DeviceFileMode" => mode = Some(value & 0o777),
            "DeviceFileModify" => modify = value != 0,
            _ => {}
        }
    }
    Some(Capability { minor: minor?, mode: mode?, modify })
}

/// The lines `name: number`.
fn numbers(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim(), value.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n236 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n195 not-this\n";

    #[test]
    fn majors_are_read_by_name() {
        assert_eq!(char_major(DEVICES, &["nvidia-uvm"]), Some(510));
        assert_eq!(char_major(DEVICES, &["nvidia-frontend", "nvidia"]), Some(195));
        assert_eq!(char_major(DEVICES, &["not-this"]), None);
        assert_eq!(char_major(DEVICES, &["uvm"]), None);
        assert_eq!(char_major("", &["nvidia"]), None);
    }

    #[test]
    fn device_file_rules_are_the_drivers() {
        let text = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\nRmMsg: \"\"\n";
        let rules = DeviceFileRules { modify: false, uid: 0, gid: 44, mode: 0o660 };
        assert_eq!(device_file_rules(text), rules);
        assert_eq!(device_file_rules("garbage"), DeviceFileRules::default());
    }

    #[test]
    fn a_capability_says_minor_and_mode() {
        let text = "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 0\n";
        let read = Capability { minor: 21, mode: 0o444, modify: false };
        assert_eq!(capability(text), Some(read));
        let text = "DeviceFileMode: 256\nDeviceFileMinor: 1\nDeviceFileOther: x\n";
        assert_eq!(capability(text), Some(Capability { minor: 1, mode: 0o400, modify: true }));
        for text in ["", "DeviceFileMinor: 21\n", "DeviceFileMinor: -1\nDeviceFileMode: 292\n"] {
            assert_eq!(capability(text), None, "{text:?}");
        }
    }
}
