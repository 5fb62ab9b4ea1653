//! What a GPU can be partitioned into and is: MIG mode, profiles, placements and instances,
//! only read here.

use gpu_dra_model::inventory::{Mig, MigMode, MigProfile};
use nvml_wrapper::{Device, Nvml};
use tracing::warn;

use crate::code::{CallError, Code, if_known};
use crate::instances::{self, Kind};
use crate::profile_name::{PROFILE_COUNT, profile_name};
use crate::raw;

/// Reads MIG mode and, where there is one, all profiles in the order of their ids.
pub(crate) fn mig(
    nvml: &Nvml,
    device: &Device<'_>,
    memory_bytes: Option<u64>,
) -> Result<Mig, CallError> {
    let Some((current, pending)) = mode(device)? else { return Ok(Mig::Unsupported) };
    let mut profiles = Vec::new();
    for index in 0..PROFILE_COUNT {
        profiles.extend(profile(nvml, device, index, memory_bytes)?);
    }
    profiles.sort_by_key(|profile| profile.id);
    let instances = match current {
        MigMode::Enabled => {
            let kinds: Vec<_> = profiles.iter().map(Kind::from).collect();
            instances::read(nvml, device, &kinds)?
        }
        MigMode::Disabled => Vec::new(),
    };
    Ok(Mig::Supported { current, pending, profiles, instances })
}

/// What there can be GPU instances of, without asking more than that.
pub(crate) fn kinds(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<Kind>, CallError> {
    let mut kinds = Vec::new();
    for index in 0..PROFILE_COUNT {
        let info = if_there(raw::profile_info(nvml, device, index))?;
        kinds.extend(info.map(|info| Kind { id: info.id, slices: info.sliceCount }));
    }
    Ok(kinds)
}

/// `nvmlDeviceGetMigMode`: current and pending, None if the GPU has no such thing.
pub(crate) fn mode(device: &Device<'_>) -> Result<Option<(MigMode, MigMode)>, CallError> {
    let answer = device.mig_mode().map_err(CallError::wrap("nvmlDeviceGetMigMode"));
    let mode = |number| if number == 1 { MigMode::Enabled } else { MigMode::Disabled };
    Ok(if_known(answer)?.map(|mig| (mode(mig.current), mode(mig.pending))))
}

/// The profile at NVML's enum `index`, None where this GPU has no such profile.
fn profile(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
    memory_bytes: Option<u64>,
) -> Result<Option<MigProfile>, CallError> {
    let Some(info) = if_there(raw::profile_info(nvml, device, index))? else { return Ok(None) };
    let name = match profile_name(index, info.memorySizeMB, memory_bytes.unwrap_or(0)) {
        Some(name) => Some(name),
        None => if_there(raw::profile_own_name(nvml, device, index))?,
    };
    let placements = if_there(raw::placements(nvml, device, info.id))?.unwrap_or_default();
    let (Some(name), false) = (name, placements.is_empty()) else {
        warn!(index, id = info.id, "MIG profile without name or placements, left out");
        return Ok(None);
    };
    Ok(Some(MigProfile {
        id: info.id,
        name,
        slices: info.sliceCount,
        max_instances: info.instanceCount,
        memory_mib: info.memorySizeMB,
        multiprocessors: info.multiprocessorCount,
        copy_engines: info.copyEngineCount,
        decoders: info.decoderCount,
        encoders: info.encoderCount,
        jpeg_engines: info.jpegCount,
        ofa_engines: info.ofaCount,
        placements,
    }))
}

/// Like [`if_known`], and INVALID_ARGUMENT says that there is no such profile: so drivers
/// answer for enum values newer than themselves.
pub(crate) fn if_there<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(error) if error.code == Code::INVALID_ARGUMENT => Ok(None),
        answer => if_known(answer),
    }
}
