//! NVLink and the fabric that it joins.

use std::ffi::{c_uchar, c_uint};
use std::mem::offset_of;

use gpu_dra_sim_data::node::{Fabric, Gpu};
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{Out, Plain, zeroed};
use crate::code::{Answer, Code};
use crate::entry::Call;

/// `NVML_GPU_FABRIC_STATE_COMPLETED`.
const COMPLETED: c_uchar = 3;

exports! {
    fn nvmlDeviceGetGpuFabricInfo(
        device: sys::nvmlDevice_t,
        info: *mut sys::nvmlGpuFabricInfo_t,
    ) |call| {
        let (position, gpu) = call.gpu(device)?;
        let (state, cluster, clique) = fabric(call, position, gpu)?;
        info.set(sys::nvmlGpuFabricInfo_t { clusterUuid: cluster, status: 0, cliqueId: clique, state })?;
        state_word(info, offset_of!(sys::nvmlGpuFabricInfo_t, state), state)
    }

    fn nvmlDeviceGetGpuFabricInfoV(
        device: sys::nvmlDevice_t,
        info: *mut sys::nvmlGpuFabricInfo_v3_t,
    ) |call| {
        let version = info.version_word()?;
        let (position, gpu) = call.gpu(device)?;
        let (state, cluster, clique) = fabric(call, position, gpu)?;
        let v2 = sys::nvmlGpuFabricInfo_v2_t {
            version,
            clusterUuid: cluster,
            status: 0,
            cliqueId: clique,
            state,
            healthMask: 0,
        };
        match version {
            0x0200_0024 => info.version().set(v2)?,
            0x0300_0028 => info.set(sys::nvmlGpuFabricInfo_v3_t {
                version,
                clusterUuid: v2.clusterUuid,
                status: v2.status,
                cliqueId: v2.cliqueId,
                state: v2.state,
                healthMask: v2.healthMask,
                // NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY
                healthSummary: 1,
            })?,
            _ => return Err(Code::ARGUMENT_VERSION_MISMATCH),
        }
        state_word(info, offset_of!(sys::nvmlGpuFabricInfo_v2_t, state), state)
    }

    fn nvmlDeviceGetPlatformInfo(
        device: sys::nvmlDevice_t,
        info: *mut sys::nvmlPlatformInfo_v2_t,
    ) |call| {
        let version = info.version_word()?;
        if version != 0x0200_002c {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let (_, gpu) = call.gpu(device)?;
        if gpu.fabric.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        let mut platform: sys::nvmlPlatformInfo_v2_t = zeroed();
        platform.version = version;
        platform.hostId = 1;
        // Joined by a switch.
        platform.peerType = 1;
        platform.moduleId = c_uchar::try_from(gpu.place.module_id).unwrap_or_default();
        info.set(platform)
    }

    fn nvmlDeviceGetNvLinkState(
        device: sys::nvmlDevice_t,
        link: c_uint,
        active: *mut sys::nvmlEnableState_t,
    ) |call| {
        let (position, gpu) = call.gpu(device)?;
        active.set(link_state(call, position, gpu, link)?)
    }

    fn nvmlDeviceGetNvLinkVersion(
        device: sys::nvmlDevice_t,
        link: c_uint,
        version: *mut c_uint,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        has_link(gpu, link)?;
        // 3.0, 4.0 and 5.0 in NVML's counting.
        version.set(match gpu.model.architecture.nvml() {
            ..=7 => 4,
            8 | 9 => 6,
            _ => 7,
        })
    }

    /// A switch at the other end, with no address of its own to tell.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        device: sys::nvmlDevice_t,
        link: c_uint,
        pci: *mut sys::nvmlPciInfo_t,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        has_link(gpu, link)?;
        pci.set(zeroed())
    }
}

/// The state is one byte, but some clients read the whole word that it's in.
fn state_word<T: Plain>(info: Out<T>, offset: usize, state: c_uchar) -> Answer {
    info.version::<c_uint>().nth(offset / size_of::<c_uint>()).set(state.into())
}

/// 1 for a link that is active.
pub(super) fn link_state(call: &Call, position: usize, gpu: &Gpu, link: c_uint) -> Answer<c_uint> {
    has_link(gpu, link)?;
    Ok((!call.trouble(position).nvlinks_down.contains(&link)).into())
}

fn has_link(gpu: &Gpu, link: c_uint) -> Answer {
    match gpu.model.nvlinks {
        0 => Err(Code::NOT_SUPPORTED),
        count if link >= count => Err(Code::INVALID_ARGUMENT),
        _ => Ok(()),
    }
}

/// State, cluster and clique.
fn fabric(call: &Call, position: usize, gpu: &Gpu) -> Answer<(c_uchar, [c_uchar; 16], c_uint)> {
    let Fabric { cluster, clique } = gpu.fabric.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    match call.trouble(position).fabric_state.unwrap_or(COMPLETED) {
        COMPLETED => Ok((COMPLETED, uuid_bytes(cluster), *clique)),
        // Until the fabric has come up nothing else is known.
        state => Ok((state, [0; 16], 0)),
    }
}

fn uuid_bytes(text: &str) -> [c_uchar; 16] {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).filter_map(|d| d.try_into().ok()).collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |sum, digit| sum << 4 | digit);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_sixteen_bytes() {
        let bytes = uuid_bytes("00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(bytes[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(bytes[15], 0xff);
    }
}
