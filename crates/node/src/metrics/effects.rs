//! The acts of a claim, each timed for its phase.

use std::sync::Arc;

use gpu_dra_claims::{KnownStep, Record};
use gpu_dra_executor::{Done, EffectError, Effects};

use super::calls::{Phase, in_phase};

/// [`Effects`] that are timed.
pub(crate) struct MeasuredEffects(pub(crate) Arc<dyn Effects>);

impl Effects for MeasuredEffects {
    fn look(&self, plan: Record) -> Result<Record, EffectError> {
        in_phase(Phase::Effects, || self.0.look(plan))
    }

    fn holds(&self, record: &Record) -> Result<bool, EffectError> {
        in_phase(Phase::Effects, || self.0.holds(record))
    }

    fn apply(&self, step: &KnownStep, begun: &Record) -> Result<Done, EffectError> {
        in_phase(Phase::Effects, || self.0.apply(step, begun))
    }

    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        in_phase(Phase::Effects, || self.0.undo(step))
    }

    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError> {
        in_phase(Phase::Cdi, || self.0.cdi_spec(record))
    }
}
