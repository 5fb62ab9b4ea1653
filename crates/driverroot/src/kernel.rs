//! The numbers that the kernel gave the driver, from `/proc/devices`, and the driver's
//! rules for its device files, from `/proc/driver/nvidia/params`.

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
    for line in params.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let Ok(value) = value.trim().parse::<u32>() else { continue };
        match name.trim() {
            "ModifyDeviceFiles" => rules.modify = value != 0,
            "DeviceFileUID" => rules.uid = value,
            "DeviceFileGID" => rules.gid = value,
            "DeviceFileMode" => rules.mode = value & 0o777,
            _ => {}
        }
    }
    rules
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
}
