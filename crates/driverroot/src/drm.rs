//! The DRM devices of a GPU, for graphics: sysfs knows them by the GPU's PCI address.
//! A GPU without any (no nvidia-drm module) is complete.

use std::io;
use std::path::Path;

use gpu_dra_hook::args::Link;
use gpu_dra_model::ids::PciBusId;

use crate::error::NodeError;
use crate::nodes::Numbers;

/// `card1` or `renderD128`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DrmDevice {
    name: String,
    /// From sysfs; `None` where it doesn't say.
    pub(crate) numbers: Option<Numbers>,
}

impl DrmDevice {
    pub(crate) fn dev_name(&self) -> String {
        format!("dri/{}", self.name)
    }

    /// The name that udev gives it, by which programs choose a GPU.
    pub(crate) fn link(&self, pci: &PciBusId) -> Link {
        let role = if self.name.starts_with("card") { "card" } else { "render" };
        Link {
            target: format!("../{}", self.name),
            path: format!("/dev/dri/by-path/pci-{pci}-{role}"),
        }
    }
}

pub(crate) fn devices(sys: &Path, pci: &PciBusId) -> Result<Vec<DrmDevice>, NodeError> {
    let folder = sys.join("bus/pci/devices").join(pci.as_str()).join("drm");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(NodeError::Io { path: folder, source }),
    };
    let mut devices = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| NodeError::Io { path: folder.clone(), source })?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if ["card", "renderD"].iter().any(|prefix| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        }) {
            let numbers = std::fs::read_to_string(entry.path().join("dev")).ok();
            let numbers = numbers.as_deref().and_then(parse_numbers);
            devices.push(DrmDevice { name, numbers });
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

fn parse_numbers(text: &str) -> Option<Numbers> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Numbers { major: major.parse().ok()?, minor: minor.parse().ok()? })
}
