//! One initialised NVML over one library file. While a session lives the driver module is in
//! use, so none is kept where there is nothing to drive: opening fails on a node without GPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_dra_model::{GpuUuid, Inventory};
use libloading::Library;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::code::{CallError, Code};
use crate::error::{GpuError, OpenError};
use crate::fingerprint::{self, Fingerprint};
use crate::instances::Kind;
use crate::trees::Trees;
use crate::{diagnose, elf, mig, probe};

/// An initialised NVML. Dropping it shuts NVML down and lets the driver module go.
#[derive(Debug)]
pub struct Session {
    nvml: Nvml,
    trees: Trees,
    /// GPU instance profiles of the GPUs that were asked for them: fixed while a driver runs.
    kinds: Mutex<BTreeMap<GpuUuid, Arc<[Kind]>>>,
}

impl Session {
    /// Loads the library file and starts NVML.
    ///
    /// # Errors
    /// What is wrong with the file, the driver or this container, and what to do about it.
    /// With no GPU to be used there is no session either ([`OpenError::NoGpus`],
    /// [`OpenError::GpusUnused`], [`OpenError::NoDeviceNodes`]).
    // NVML's table of functions is 6 KB on the stack, several times over: inlined, every
    // thread that ever asks a GPU would keep a stack of that size.
    #[cold]
    #[inline(never)]
    pub fn open(library: &Path, trees: &Trees) -> Result<Self, OpenError> {
        // Held to the end, so that the wrapper doesn't load the file a second time.
        let _loaded = load(library, trees)?;
        let nvml =
            Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| match error {
                NvmlError::LibloadingError(source) => {
                    OpenError::NotLoadable { path: library.to_owned(), source }
                }
                error => {
                    diagnose::failed_init(CallError::wrap("nvmlInit_v2")(error), library, trees)
                }
            })?;
        let session = Self { nvml, trees: trees.clone(), kinds: Mutex::default() };
        if session.device_count()? == 0 {
            return Err(diagnose::no_gpus(trees));
        }
        Ok(session)
    }

    /// Asks everything of every GPU: a few hundred calls on a full node.
    ///
    /// # Errors
    /// Only when NVML as a whole fails; a GPU that fails is in the inventory as broken.
    pub fn probe(&self) -> Result<Inventory, OpenError> {
        probe::probe(&self.nvml, &self.trees).map_err(OpenError::Call)
    }

    /// Asks just enough to see whether [`Session::probe`] may find something else.
    ///
    /// # Errors
    /// When NVML as a whole fails.
    pub fn fingerprint(&self) -> Result<Fingerprint, OpenError> {
        fingerprint::fingerprint(self).map_err(OpenError::Call)
    }

    /// `nvmlDeviceGetCount_v2`: GPUs of the driver, also those that don't answer.
    ///
    /// # Errors
    /// When NVML as a whole fails.
    pub fn device_count(&self) -> Result<u32, OpenError> {
        probe::count(&self.nvml).map_err(OpenError::Call)
    }

    pub(crate) fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// What there can be GPU instances of on this GPU.
    pub(crate) fn kinds(
        &self,
        uuid: &GpuUuid,
        device: &Device<'_>,
    ) -> Result<Arc<[Kind]>, CallError> {
        // Only whole entries are ever put in, so a panic elsewhere leaves it good.
        let known = || self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kinds) = known().get(uuid) {
            return Ok(Arc::clone(kinds));
        }
        let kinds: Arc<[Kind]> = mig::kinds(&self.nvml, device)?.into();
        known().insert(uuid.clone(), Arc::clone(&kinds));
        Ok(kinds)
    }

    /// Looks the GPU up anew: handles go stale when a GPU is removed or its MIG mode changes.
    pub(crate) fn device(&self, uuid: &GpuUuid) -> Result<Device<'_>, GpuError> {
        self.nvml
            .device_by_uuid(uuid.as_str())
            .map_err(CallError::wrap("nvmlDeviceGetHandleByUUID"))
            .map_err(|source| match source.code {
                Code::NOT_FOUND => GpuError::Gone { uuid: uuid.clone() },
                code if code.ends_session() => OpenError::Call(source).into(),
                _ => GpuError::Call { uuid: uuid.clone(), source },
            })
    }
}

/// Loads the file, and refuses one that the wrapper would fail on late: its `Drop` calls
/// `nvmlShutdown` and panics where that is missing.
fn load(path: &Path, trees: &Trees) -> Result<Library, OpenError> {
    match path.metadata() {
        Ok(meta) if meta.is_dir() => return Err(OpenError::IsDirectory { path: path.to_owned() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::no_library(path, trees));
        }
        _ => {}
    }
    // A file that can't be read is left to the loader, which says why.
    if !elf::is_whole(path).unwrap_or(true) {
        return Err(OpenError::Truncated { path: path.to_owned() });
    }
    // SAFETY: loading runs the library's initialisers. The path is the administrator's choice
    // of driver, which every CUDA program on the node loads just so.
    let library = unsafe { Library::new(path) }
        .map_err(|source| OpenError::NotLoadable { path: path.to_owned(), source })?;
    for symbol in ["nvmlInit_v2", "nvmlShutdown"] {
        // SAFETY: the symbol is only looked up, never called through this type.
        if unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
            return Err(OpenError::Incomplete { path: path.to_owned(), symbol });
        }
    }
    Ok(library)
}
