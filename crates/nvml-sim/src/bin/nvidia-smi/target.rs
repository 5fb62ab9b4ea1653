//! The library beside this program, the GPUs that are meant, the node's state directory.

use std::path::PathBuf;

use gpu_dra_sim_data::{STATE_ENV, StateDir};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::failure::Failure;

/// Where the libraries lie, seen from where the programs lie.
const LIBRARIES: [&str; 4] = [
    "../lib/x86_64-linux-gnu",
    "../lib/aarch64-linux-gnu",
    "../lib64",
    "../../../../lib/nvidia/tesla",
];

/// The library, started.
pub(crate) struct Smi {
    pub(crate) nvml: Nvml,
}

/// One GPU that is meant.
pub(crate) struct Target<'smi> {
    pub(crate) index: u32,
    /// As NVML writes it: `00000000:07:00.0`.
    pub(crate) bus_id: String,
    pub(crate) device: Device<'smi>,
}

impl Smi {
    pub(crate) fn open() -> Result<Self, Failure> {
        let own = std::env::current_exe().ok().and_then(|exe| exe.canonicalize().ok());
        let folder = own.as_deref().and_then(|exe| exe.parent());
        let beside = folder.into_iter().flat_map(|folder| {
            LIBRARIES.iter().map(move |path| folder.join(path).join("libnvidia-ml.so.1"))
        });
        let library = beside
            .into_iter()
            .find(|file| file.is_file())
            .unwrap_or_else(|| PathBuf::from("libnvidia-ml.so.1"));
        let nvml = Nvml::builder().lib_path(library.as_os_str()).init();
        Ok(Self { nvml: nvml.map_err(|error| Failure::start(&error))? })
    }

    /// The GPUs of a list of indexes, UUIDs and PCI bus ids, or all.
    pub(crate) fn targets(&self, ids: Option<&str>) -> Result<Vec<Target<'_>>, Failure> {
        let devices: Vec<Device<'_>> = match ids {
            Some(ids) => ids.split(',').map(|id| self.device(id)).collect::<Result<_, _>>()?,
            None => (0..self.nvml.device_count()?)
                .map(|index| self.nvml.device_by_index(index))
                .collect::<Result<_, _>>()?,
        };
        if devices.is_empty() {
            return Err(Failure::new(6, "No devices were found"));
        }
        devices
            .into_iter()
            .map(|device| {
                let (index, bus_id) = (device.index()?, device.pci_info()?.bus_id);
                Ok(Target { index, bus_id, device })
            })
            .collect()
    }

    fn device(&self, id: &str) -> Result<Device<'_>, Failure> {
        let found = if id.contains(':') {
            self.nvml.device_by_pci_bus_id(id)
        } else if let Ok(index) = id.parse() {
            self.nvml.device_by_index(index)
        } else {
            self.nvml.device_by_uuid(id)
        };
        found.map_err(|error| match error {
            NvmlError::InvalidArg | NvmlError::NotFound => {
                Failure::new(6, format!("No devices were found that match \"{id}\""))
            }
            other => other.into(),
        })
    }
}

/// The state directory of the node that this program lies in.
pub(crate) fn state_dir() -> Result<StateDir, Failure> {
    let named = std::env::var_os(STATE_ENV).map(PathBuf::from);
    named
        .map_or_else(
            || std::env::current_exe().ok().and_then(|exe| StateDir::near(&exe)),
            |path| StateDir::open(&path),
        )
        .ok_or_else(|| Failure::new(4, "Insufficient Permissions: the node's state isn't here"))
}
