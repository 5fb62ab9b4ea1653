//! One reading of a GPU's health. What hardware or driver don't say, or can't be asked, is
//! left out; that the GPU is gone is an answer. Nothing here judges.

use gpu_dra_health::{HealthReading, NvLinks, RecoveryAction, RowRemap};
use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::MigMode;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::field_id as field;
use tracing::debug;

use crate::code::{CallError, Code, if_possible};
use crate::error::{GpuError, OpenError};
use crate::mig;
use crate::raw;
use crate::raw_fields::field_values;
use crate::session::Session;

/// `NVML_NVLINK_MAX_LINKS`; a link beyond a GPU's own isn't counted.
const MAX_LINKS: usize = 18;

/// Fails only if NVML as a whole doesn't answer.
pub(crate) fn read(session: &Session, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
    let error = match session.device(uuid) {
        Ok(device) => match reading(session.nvml(), &device) {
            Ok(reading) => return Ok(reading),
            Err(error) => error,
        },
        Err(GpuError::Driver(error)) => return Err(error),
        Err(GpuError::Call { source, .. }) => source,
        Err(_) => return Ok(on_bus(false)),
    };
    match error.code {
        Code::GPU_IS_LOST => Ok(on_bus(false)),
        // Told in place of any answer.
        Code::RESET_REQUIRED => {
            Ok(HealthReading { recovery_action: Some(RecoveryAction::Reset), ..on_bus(true) })
        }
        // It answers, and has nothing to say.
        code if code.is_absent() => Ok(on_bus(true)),
        code if code.ends_session() => Err(OpenError::Call(error)),
        _ => {
            debug!(gpu = %uuid, %error, "no health reading");
            Ok(HealthReading::default())
        }
    }
}

/// No more is known.
fn on_bus(there: bool) -> HealthReading {
    HealthReading { lost: Some(!there), ..HealthReading::default() }
}

fn reading(nvml: &Nvml, device: &Device<'_>) -> Result<HealthReading, CallError> {
    let [action, ecc, pending, failure, pages, links] = field_values(
        nvml,
        device,
        [
            (field::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0),
            (field::NVML_FI_DEV_ECC_DBE_VOL_TOTAL, 0),
            (field::NVML_FI_DEV_REMAPPED_PENDING, 0),
            (field::NVML_FI_DEV_REMAPPED_FAILURE, 0),
            (field::NVML_FI_DEV_RETIRED_PENDING, 0),
            (field::NVML_FI_DEV_NVLINK_LINK_COUNT, 0),
        ],
    )?;
    let (pending, failed) = (if_possible(pending)?, if_possible(failure)?);
    let nvlinks = match if_possible(links)? {
        Some(count) if count > 0 => nvlinks(nvml, device)?,
        _ => None,
    };
    Ok(HealthReading {
        lost: Some(false),
        recovery_action: if_possible(action)?
            .map(|number| RecoveryAction::from_nvml(u32::try_from(number).unwrap_or(u32::MAX))),
        uncorrected_ecc: if_possible(ecc)?,
        row_remap: pending
            .zip(failed)
            .map(|(pending, failed)| RowRemap { pending: pending != 0, failed: failed != 0 }),
        retired_pages_pending: if_possible(pages)?.map(|pending| pending != 0),
        nvlinks,
    })
}

/// Links by state. Asked in one call from Hopper on, link by link before.
fn nvlinks(nvml: &Nvml, device: &Device<'_>) -> Result<Option<NvLinks>, CallError> {
    let mut each = [0; MAX_LINKS];
    each.iter_mut().zip(0..).for_each(|(link, nth)| *link = nth);
    let by_field =
        field_values(nvml, device, each.map(|link| (field::NVML_FI_DEV_NVLINK_GET_STATE, link)))?;
    let mut links = count(by_field)?;
    if links.up + links.down == 0 {
        links = count(each.map(|link| raw::nvlink_state(nvml, device, link)))?;
    }
    // In MIG mode there is no peer-to-peer traffic, and what the links do means nothing.
    let mig =
        || Ok(matches!(if_possible(mig::mode(device))?.flatten(), Some((MigMode::Enabled, _))));
    let told = links.up + links.down > 0 && (links.down == 0 || !mig()?);
    Ok(told.then_some(links))
}

/// Inactive is 0; newer drivers tell sleep from active.
fn count(states: [Result<u64, CallError>; MAX_LINKS]) -> Result<NvLinks, CallError> {
    let mut links = NvLinks { up: 0, down: 0 };
    for state in states {
        match if_possible(state)? {
            Some(0) => links.down += 1,
            Some(_) => links.up += 1,
            None => {}
        }
    }
    Ok(links)
}
