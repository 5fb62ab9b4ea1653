//! One reading of a GPU's health. What hardware or driver don't say, or can't be asked, is
//! left out, each by itself; that the GPU is gone is an answer. Nothing here judges.

use gpu_dra_health::{FailedCall, HealthReading, NvLinks, RecoveryAction, RowRemap};
use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::MigMode;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::field_id as field;
use tracing::debug;

use crate::code::{CallError, Code};
use crate::error::{GpuError, OpenError};
use crate::mig;
use crate::raw;
use crate::raw_fields::field_values;
use crate::session::Session;

/// `NVML_NVLINK_MAX_LINKS`; a link beyond a GPU's own isn't counted.
const MAX_LINKS: usize = 18;

/// Fails only if NVML as a whole doesn't answer.
pub(crate) fn read(session: &Session, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
    let mut answers = Answers::default();
    let mut reading = HealthReading::default();
    match session.device(uuid) {
        Ok(device) => answers.read(session.nvml(), &device, &mut reading),
        Err(GpuError::Driver(error)) => return Err(error),
        Err(GpuError::Call { source, .. }) => answers.note_failure(source),
        Err(_) => answers.is_lost = true,
    }
    if let Some(error) = answers.session_is_over {
        return Err(OpenError::Call(error));
    }
    if answers.is_lost {
        reading.lost = Some(true);
    } else if answers.has_answered {
        reading.lost = Some(false);
    }
    let asks_for_nothing = matches!(reading.recovery_action, None | Some(RecoveryAction::Nothing));
    if answers.must_be_reset && asks_for_nothing {
        reading.recovery_action = Some(RecoveryAction::Reset);
    }
    if !answers.failed.is_empty() {
        debug!(gpu = %uuid, failed = ?answers.failed, "health reading isn't whole");
    }
    reading.failed = answers.failed;
    Ok(reading)
}

/// What the answers so far say of the GPU as a whole.
#[derive(Default)]
struct Answers {
    /// It has answered something, were it that it has no answer.
    has_answered: bool,
    is_lost: bool,
    /// Told in place of any answer.
    must_be_reset: bool,
    session_is_over: Option<CallError>,
    /// Each kind once.
    failed: Vec<FailedCall>,
}

impl Answers {
    /// The answer where there is one. One that failed must not void the others.
    fn note<T>(&mut self, answer: Result<T, CallError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.has_answered = true;
                Some(answer)
            }
            Err(error) => {
                self.note_failure(error);
                None
            }
        }
    }

    fn note_failure(&mut self, error: CallError) {
        match error.code {
            Code::GPU_IS_LOST => self.is_lost = true,
            Code::RESET_REQUIRED => (self.has_answered, self.must_be_reset) = (true, true),
            code if code.is_absent() => self.has_answered = true,
            code if code.ends_session() => self.session_is_over = Some(error),
            code => {
                let failed = FailedCall { call: error.call, code: code.0 };
                if !self.failed.contains(&failed) {
                    self.failed.push(failed);
                }
            }
        }
    }

    fn read(&mut self, nvml: &Nvml, device: &Device<'_>, reading: &mut HealthReading) {
        let fields = field_values(
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
        );
        let Some([action, ecc, pending, failure, pages, links]) = self.note(fields) else {
            return;
        };
        reading.recovery_action = self
            .note(action)
            .map(|number| RecoveryAction::from_nvml(u32::try_from(number).unwrap_or(u32::MAX)));
        reading.uncorrected_ecc = self.note(ecc);
        let rows = (self.note(pending), self.note(failure));
        if let (Some(pending), Some(failed)) = rows {
            reading.row_remap = Some(RowRemap { pending: pending != 0, failed: failed != 0 });
        }
        reading.retired_pages_pending = self.note(pages).map(|pending| pending != 0);
        if let Some(count) = self.note(links).filter(|count| *count > 0) {
            reading.nvlinks = self.nvlinks(nvml, device, count);
        }
    }

    /// The GPU's `count` links by state; None where not all of them tell. Asked in one call from
    /// Hopper on, link by link before.
    fn nvlinks(&mut self, nvml: &Nvml, device: &Device<'_>, count: u64) -> Option<NvLinks> {
        let mut each = [0; MAX_LINKS];
        each.iter_mut().zip(0..).for_each(|(link, nth)| *link = nth);
        let fields = each.map(|link| (field::NVML_FI_DEV_NVLINK_GET_STATE, link));
        let by_field = field_values(nvml, device, fields);
        let mut links = self.note(by_field).and_then(|states| self.count(states, count));
        if links.is_none() {
            links = self.count(each.map(|link| raw::nvlink_state(nvml, device, link)), count);
        }
        let links = links?;
        // In MIG mode there is no peer-to-peer traffic, and what the links do means nothing.
        let is_mig = links.down > 0
            && matches!(self.note(mig::mode(device)).flatten(), Some((MigMode::Enabled, _)));
        (!is_mig).then_some(links)
    }

    /// Inactive is 0; newer drivers tell sleep from active. None where there is none, or one of
    /// the GPU's own can't be asked: to leave it out would make a broken link of it.
    fn count(
        &mut self,
        states: [Result<u64, CallError>; MAX_LINKS],
        count: u64,
    ) -> Option<NvLinks> {
        let mut links = NvLinks { up: 0, down: 0 };
        let mut all_tell = true;
        for (nth, state) in (0..).zip(states) {
            match state {
                Ok(0) => links.down += 1,
                Ok(_) => links.up += 1,
                // What there is not is answered in various ways.
                Err(error) if nth < count && !error.code.is_absent() => {
                    self.note_failure(error);
                    all_tell = false;
                }
                Err(_) => {}
            }
        }
        (all_tell && links.up + links.down > 0).then_some(links)
    }
}
