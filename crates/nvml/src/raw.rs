//! The NVML calls that the wrapper lacks, gets wrong, or narrows to its own enums, but for
//! those on MIG instances (`raw_mig`). All other `unsafe` on devices is here: symbols are
//! looked up and called by the prototypes of the bindings, never by the bindings' methods,
//! which panic when a library lacks the symbol.

use std::ptr;

use gpu_dra_model::inventory::Placement;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallError, Code};
use crate::limits::{self, at_most};
use crate::raw_text::text;

/// A getter of the form `f(device, *mut T)`, as most of NVML's are.
type Getter<T> =
    Result<unsafe extern "C" fn(sys::nvmlDevice_t, *mut T) -> sys::nvmlReturn_t, libloading::Error>;

/// Calls a getter. `value` is what the library finds, for structures with a version word.
pub(crate) fn get<T>(
    call: &'static str,
    symbol: &Getter<T>,
    device: &Device<'_>,
    mut value: T,
) -> Result<T, CallError> {
    let function = symbol.as_ref().map_err(|_| CallError::missing(call))?;
    // SAFETY: `function` has the prototype that the bindings give this symbol, the handle
    // comes from the same initialised library that `device` borrows, and `value` is a live,
    // initialised T. A versioned T tells the library its own size or a smaller, older one.
    let code = unsafe { function(device.handle(), &raw mut value) };
    CallError::check(call, code)?;
    Ok(value)
}

/// NVML's version word of a structure: its size, and its version in the top byte.
const fn version_word<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | (version << 24)
}

/// `nvmlDeviceGetArchitecture`, as a number.
pub(crate) fn architecture(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    get("nvmlDeviceGetArchitecture", &nvml.lib().nvmlDeviceGetArchitecture, device, 0)
}

/// `nvmlDeviceGetBrand`, as a number.
pub(crate) fn brand(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    get("nvmlDeviceGetBrand", &nvml.lib().nvmlDeviceGetBrand, device, 0)
}

/// `nvmlDeviceGetVirtualizationMode`, as a number: 0 none, 1 passthrough, 2 vGPU guest,
/// 3 vGPU host, 4 vSGA host.
pub(crate) fn virtualization_mode(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    get("nvmlDeviceGetVirtualizationMode", &nvml.lib().nvmlDeviceGetVirtualizationMode, device, 0)
}

/// `nvmlDeviceGetComputeMode`, as a number.
pub(crate) fn compute_mode(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    get("nvmlDeviceGetComputeMode", &nvml.lib().nvmlDeviceGetComputeMode, device, 0)
}

/// `nvmlDeviceGetNvLinkState` of one link: 0 inactive, 1 active.
pub(crate) fn nvlink_state(nvml: &Nvml, device: &Device<'_>, link: u32) -> Result<u64, CallError> {
    const CALL: &str = "nvmlDeviceGetNvLinkState";
    let symbol = nvml.lib().nvmlDeviceGetNvLinkState.as_ref();
    let function = symbol.map_err(|_| CallError::missing(CALL))?;
    let mut state = 0;
    // SAFETY: prototype from the bindings, handle from the same library, `state` is live.
    CallError::check(CALL, unsafe { function(device.handle(), link, &raw mut state) })?;
    Ok(state.into())
}

/// `nvmlDeviceGetModuleId`.
pub(crate) fn module_id(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    get("nvmlDeviceGetModuleId", &nvml.lib().nvmlDeviceGetModuleId, device, 0)
}

/// `nvmlDeviceGetAddressingMode`, as a number: 0 none, 1 HMM, 2 ATS.
pub(crate) fn addressing_mode(nvml: &Nvml, device: &Device<'_>) -> Result<u32, CallError> {
    let empty = sys::nvmlDeviceAddressingMode_t {
        version: version_word::<sys::nvmlDeviceAddressingMode_t>(1),
        value: 0,
    };
    let symbol = &nvml.lib().nvmlDeviceGetAddressingMode;
    get("nvmlDeviceGetAddressingMode", symbol, device, empty).map(|mode| mode.value)
}

/// Total memory in bytes by the first `nvmlDeviceGetMemoryInfo`, for libraries without `_v2`.
pub(crate) fn memory_total_v1(nvml: &Nvml, device: &Device<'_>) -> Result<u64, CallError> {
    let empty = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
    let symbol = &nvml.lib().nvmlDeviceGetMemoryInfo;
    get("nvmlDeviceGetMemoryInfo", symbol, device, empty).map(|memory| memory.total)
}

/// What the GPU's place in the NVLink fabric is, in NVML's own numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FabricInfo {
    pub(crate) cluster_uuid: [u8; 16],
    pub(crate) clique_id: u32,
    /// `nvmlGpuFabricState_t`; 3 is completed.
    pub(crate) state: u32,
    /// `nvmlReturn_t` of the registration; 0 is success.
    pub(crate) status: u32,
}

/// `nvmlDeviceGetGpuFabricInfoV` with the third, then the second structure, then the first
/// function without a version: each driver knows those up to its own age.
pub(crate) fn fabric_info(nvml: &Nvml, device: &Device<'_>) -> Result<FabricInfo, CallError> {
    let outdated = |error: &CallError| {
        matches!(
            error.code,
            Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH | Code::INVALID_ARGUMENT
        )
    };
    for version in [
        version_word::<sys::nvmlGpuFabricInfo_v3_t>(3),
        version_word::<sys::nvmlGpuFabricInfo_v2_t>(2),
    ] {
        // The second version is the third without its last field, so one structure serves.
        let empty = sys::nvmlGpuFabricInfo_v3_t {
            version,
            clusterUuid: [0; 16],
            status: 0,
            cliqueId: 0,
            state: 0,
            healthMask: 0,
            healthSummary: 0,
        };
        let symbol = &nvml.lib().nvmlDeviceGetGpuFabricInfoV;
        match get("nvmlDeviceGetGpuFabricInfoV", symbol, device, empty) {
            Err(error) if outdated(&error) => {}
            answer => {
                return answer.map(|info| FabricInfo {
                    cluster_uuid: info.clusterUuid,
                    clique_id: info.cliqueId,
                    state: info.state.into(),
                    status: info.status,
                });
            }
        }
    }
    let empty = sys::nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: 0, cliqueId: 0, state: 0 };
    let symbol = &nvml.lib().nvmlDeviceGetGpuFabricInfo;
    get("nvmlDeviceGetGpuFabricInfo", symbol, device, empty).map(|info| FabricInfo {
        cluster_uuid: info.clusterUuid,
        clique_id: info.cliqueId,
        state: info.state.into(),
        status: info.status,
    })
}

/// `nvmlDeviceGetGpuInstanceProfileInfo` of NVML's enum `index` (not the profile's id).
pub(crate) fn profile_info(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
) -> Result<sys::nvmlGpuInstanceProfileInfo_t, CallError> {
    const CALL: &str = "nvmlDeviceGetGpuInstanceProfileInfo";
    let symbol = nvml.lib().nvmlDeviceGetGpuInstanceProfileInfo.as_ref();
    let function = symbol.map_err(|_| CallError::missing(CALL))?;
    let mut info = sys::nvmlGpuInstanceProfileInfo_t {
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
    };
    // SAFETY: prototype from the bindings, handle from the same library, `info` is live.
    let code = unsafe { function(device.handle(), index, &raw mut info) };
    CallError::check(CALL, code)?;
    Ok(info)
}

/// The driver's own name of the profile at `index`, without the `MIG ` that some drivers
/// put before it (`nvmlDeviceGetGpuInstanceProfileInfoV`, second structure).
pub(crate) fn profile_own_name(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
) -> Result<String, CallError> {
    const CALL: &str = "nvmlDeviceGetGpuInstanceProfileInfoV";
    let symbol = nvml.lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref();
    let function = symbol.map_err(|_| CallError::missing(CALL))?;
    let mut info = sys::nvmlGpuInstanceProfileInfo_v2_t {
        version: version_word::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2),
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
        name: [0; 96],
    };
    // SAFETY: prototype from the bindings, handle from the same library, `info` is live and
    // says its version and size.
    let code = unsafe { function(device.handle(), index, &raw mut info) };
    CallError::check(CALL, code)?;
    let name = text(CALL, &info.name)?;
    Ok(name.strip_prefix("MIG ").unwrap_or(&name).to_owned())
}

/// `nvmlDeviceGetGpuInstancePossiblePlacements_v2` of a profile by its id, in memory slices.
pub(crate) fn placements(
    nvml: &Nvml,
    device: &Device<'_>,
    profile_id: u32,
) -> Result<Vec<Placement>, CallError> {
    const CALL: &str = "nvmlDeviceGetGpuInstancePossiblePlacements_v2";
    let symbol = nvml.lib().nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref();
    let function = symbol.map_err(|_| CallError::missing(CALL))?;
    let mut count = 0;
    // SAFETY: prototype from the bindings, handle from the same library; without an array
    // the function only writes the count.
    let code = unsafe { function(device.handle(), profile_id, ptr::null_mut(), &raw mut count) };
    CallError::check(CALL, code)?;
    at_most(limits::OF_ONE_GPU, CALL, count)?;
    let nowhere = sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let mut found = vec![nowhere; limits::OF_ONE_GPU as usize];
    // SAFETY: as above. The function writes as many placements as there are, whatever count it
    // is told, and whatever it said before: no GPU can have more than there is room for.
    let code = unsafe { function(device.handle(), profile_id, found.as_mut_ptr(), &raw mut count) };
    CallError::check(CALL, code)?;
    found.truncate(count as usize);
    Ok(found.iter().map(|p| Placement { start: p.start, size: p.size }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_words_are_those_of_the_header() {
        assert_eq!(version_word::<sys::nvmlDeviceAddressingMode_t>(1), 0x0100_0008);
        assert_eq!(version_word::<sys::nvmlGpuFabricInfo_v2_t>(2), 0x0200_0024);
        assert_eq!(version_word::<sys::nvmlGpuFabricInfo_v3_t>(3), 0x0300_0028);
        assert_eq!(version_word::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2), 0x0200_0098);
    }
}
