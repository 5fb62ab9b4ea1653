//! The measured runs. Setting up and cleaning up is outside the measured time, and the floor
//! is measured between two claims, so that a machine that changes its speed changes both.

use std::time::{Duration, Instant};

use futures::future::try_join_all;

use super::floor::Floor;
use super::target::Target;

/// Times of one kind of call.
#[derive(Debug, Default, Clone)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn add(&mut self, since: Instant) {
        self.0.push(since.elapsed());
    }

    /// The `percent`-th percentile in milliseconds; None without any time.
    pub(super) fn percentile(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).map(|time| time.as_secs_f64() * 1000.0)
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// All times of one driver.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Prepare, one caller.
    pub(super) prepare: Times,
    /// Prepare again of a claim that is prepared.
    pub(super) again: Times,
    /// Unprepare, one caller.
    pub(super) unprepare: Times,
    /// Prepare, four callers at once on different GPUs.
    pub(super) four_callers: Times,
    /// Eight claims in one call.
    pub(super) eight_claims: Times,
    /// NVML's own calls that make a MIG device.
    pub(super) nvml_make: Times,
    /// NVML's own calls that remove it.
    pub(super) nvml_remove: Times,
}

/// One claim: prepared, prepared again, unprepared.
pub(super) async fn one(target: &Target, at: usize, into: &mut Measured) -> anyhow::Result<()> {
    let claim = [target.claim(at).await?];
    let start = Instant::now();
    target.prepare(&claim).await?;
    into.prepare.add(start);
    let start = Instant::now();
    target.prepare(&claim).await?;
    into.again.add(start);
    let start = Instant::now();
    target.unprepare(&claim).await?;
    into.unprepare.add(start);
    target.delete(&claim[0]).await
}

/// The floor, once.
pub(super) async fn floor(target: &Target, floor: &Floor, into: &mut Times) -> anyhow::Result<()> {
    let claim = target.claim(0).await?;
    let start = Instant::now();
    floor.once(&claim.name).await?;
    into.add(start);
    floor.clean(&claim.name)?;
    target.delete(&claim).await
}

/// Four callers at once, each on a GPU of its own; fewer where there are fewer GPUs.
pub(super) async fn four_callers(target: &Target, into: &mut Measured) -> anyhow::Result<()> {
    let callers = target.devices().min(4);
    let claims = try_join_all((0..callers).map(|at| target.claim(at))).await?;
    let calls = claims.iter().map(|claim| async move {
        let start = Instant::now();
        target.prepare(std::slice::from_ref(claim)).await?;
        anyhow::Ok(start)
    });
    let calls = calls.map(|call| async move {
        let start = call.await?;
        anyhow::Ok(start.elapsed())
    });
    into.four_callers.0.extend(try_join_all(calls).await?);
    for claim in &claims {
        target.unprepare(std::slice::from_ref(claim)).await?;
        target.delete(claim).await?;
    }
    Ok(())
}

/// Eight claims in one call, where there are eight GPUs.
pub(super) async fn eight_claims(target: &Target, into: &mut Measured) -> anyhow::Result<()> {
    if target.devices() < 8 {
        return Ok(());
    }
    let claims = try_join_all((0..8).map(|at| target.claim(at))).await?;
    let start = Instant::now();
    target.prepare(&claims).await?;
    into.eight_claims.add(start);
    target.unprepare(&claims).await?;
    for claim in &claims {
        target.delete(claim).await?;
    }
    Ok(())
}
