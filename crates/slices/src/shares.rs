//! A whole GPU as one that several claims may each have a share of (consumable capacity,
//! KEP-5075): a part of its memory and, if they ask for it, of its threads.
//!
//! A claim that asks for no share gets all of the memory, and so is alone on the GPU.

use gpu_dra_model::inventory::ComputeCapability;
use gpu_dra_model::{DeviceKind, Gpu, Quantity, Shares};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::attributes::{HAS_MONITOR, boolean};
use crate::mig::Published;
use crate::note::Note;

/// The capacity of which a share takes a part at most.
pub const COMPUTE_PERCENT: &str = "computePercent";

/// MPS has limits since Volta.
const VOLTA: ComputeCapability = ComputeCapability { major: 7, minor: 0 };

const MIB: u64 = 1 << 20;

/// The GPU in shares, where the policy says so and it can be.
pub(crate) fn offered(
    mut whole: Published,
    gpu: &Gpu,
    shares: Shares,
    notes: &mut Vec<Note>,
) -> Published {
    if shares == Shares::Off {
        return whole;
    }
    let too_old = gpu.compute_capability.is_some_and(|cc| cc < VOLTA);
    let why = match gpu.memory_bytes {
        None => "NVML reports no memory of its own",
        Some(_) if shares == Shares::Mps && too_old => "MPS has no limits before Volta",
        Some(bytes) => {
            share_out(&mut whole, bytes / MIB, shares);
            return whole;
        }
    };
    notes.push(Note::NoShares { gpu: whole.name.clone(), why });
    whole
}

fn share_out(whole: &mut Published, mebibytes: u64, shares: Shares) {
    let quantity = |mebibytes: u64| {
        api::Quantity(Quantity::from_bytes_binary(mebibytes.saturating_mul(MIB)).to_string())
    };
    let plain = |number: u32| api::Quantity(number.to_string());
    let policy = |default, min, max, step| CapacityRequestPolicy {
        default: Some(default),
        valid_range: Some(CapacityRequestPolicyRange { min, max: Some(max), step: Some(step) }),
        valid_values: None,
    };
    let memory = DeviceCapacity {
        value: quantity(mebibytes),
        request_policy: Some(policy(
            quantity(mebibytes),
            quantity(1),
            quantity(mebibytes),
            quantity(1),
        )),
    };
    // Nobody has to ask for threads: without it a share may use all that are idle.
    let percent = DeviceCapacity {
        value: plain(100),
        request_policy: Some(policy(plain(0), plain(0), plain(100), plain(1))),
    };
    whole.device.allow_multiple_allocations = Some(true);
    if let Some(attributes) = &mut whole.device.attributes {
        attributes.insert(HAS_MONITOR.to_owned(), boolean(true));
    }
    let capacities = whole.device.capacity.get_or_insert_default();
    capacities.insert("memory".to_owned(), memory);
    capacities.insert(COMPUTE_PERCENT.to_owned(), percent);
    if let DeviceKind::Gpu { shares: of_kind, .. } = &mut whole.kind {
        *of_kind = shares;
    }
}
