//! Orders the acts of one claim: journal the plan, do its steps, write the CDI spec, journal
//! that it is done; and back. After a crash at any point, [`Executor::recover`] ends in a
//! state from which the kubelet's next call ends as if nothing had happened.
//!
//! It decides nothing about claims (`claims` does) and knows neither API server nor kubelet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_cdi::ShareId;
use gpu_dra_claims::{
    AllocatedDevice, Allocation, KnownStep, NodeView, Phase, Record, Refusal, Step, check, plan,
};
use gpu_dra_host::{FileError, Files, LockError, LockGuard, Locks};
use gpu_dra_model::{BootId, CdiDeviceId, ClaimUid, DriverName, GpuUuid, IdError};

use crate::effects::{Done, EffectError, Effects};
use crate::journal::{Journal, JournalError};

/// Why a claim could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// A rule forbids it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A plan of ours breaks a rule of ours.
    #[error("{0}; this is a bug in the node agent, nothing was changed")]
    BadPlan(#[from] check::Violation),
    /// The journal can't be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step failed.
    #[error(transparent)]
    Effect(#[from] EffectError),
    /// The CDI spec can't be written or removed.
    #[error("CDI spec: {0}")]
    Cdi(#[from] FileError),
    /// Somebody else is at work on the claim or its GPU.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// How long a call waits for another claim's work on the same GPU: well below the kubelet's
/// limit of 45 s, so that it hears the reason.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does what the journal says.
pub struct Executor {
    /// The claims held.
    pub journal: Arc<Journal>,
    /// The machine beside files.
    pub effects: Arc<dyn Effects>,
    files: Arc<dyn Files>,
    locks: Arc<Locks>,
    naming: CdiNaming,
}

/// Where CDI specs lie and what they are called.
#[derive(Debug, Clone)]
pub struct CdiNaming {
    /// The folder that the container runtime reads.
    pub dir: PathBuf,
    /// The driver, whose name is in theirs.
    pub driver: DriverName,
}

impl CdiNaming {
    fn path(&self, uid: &ClaimUid) -> PathBuf {
        self.dir.join(gpu_dra_cdi::file_name(&self.driver, uid))
    }

    /// Where the incumbent has the claim's spec. Its devices are called as ours, and two
    /// files with one device make it unusable.
    fn incumbents_path(&self, uid: &ClaimUid) -> PathBuf {
        self.path(uid).with_extension("yaml")
    }

    fn device(&self, uid: &ClaimUid, result: &AllocatedDevice) -> Result<CdiDeviceId, IdError> {
        let share = match &result.share_id {
            None => None,
            // A share id that can't be part of a CDI name is reported as the name it would give.
            Some(id) => match ShareId::new(id) {
                Some(share) => Some(share),
                None => return CdiDeviceId::new(id),
            },
        };
        gpu_dra_cdi::device_id(&self.driver, uid, &result.device, share.as_ref())
    }
}

/// A claim is at work under this; see [`Executor::lock_claim`].
pub struct ClaimLock {
    uid: ClaimUid,
    _guard: LockGuard,
}

impl Executor {
    /// Puts the parts together; creates the CDI folder.
    ///
    /// # Errors
    /// When the CDI folder can't be created.
    pub fn new(
        journal: Arc<Journal>,
        effects: Arc<dyn Effects>,
        files: Arc<dyn Files>,
        locks: Arc<Locks>,
        naming: CdiNaming,
    ) -> Result<Self, ExecuteError> {
        files.create_dir(&naming.dir, 0o755)?;
        Ok(Self { journal, effects, files, locks, naming })
    }

    /// Locks one claim against other threads and the other process of a rolling update. The
    /// claim must be read from the API server under this lock, so that what was read before
    /// an unprepare is never acted on after it.
    ///
    /// # Errors
    /// When it is not free within `patience`.
    pub fn lock_claim(&self, uid: &ClaimUid, patience: Duration) -> Result<ClaimLock, LockError> {
        let guard = self.locks.lock(&format!("claim {uid}"), patience)?;
        Ok(ClaimLock { uid: uid.clone(), _guard: guard })
    }

    /// Prepares a claim, or verifies that it is prepared. Gives the record to answer from.
    ///
    /// # Errors
    /// The rule or the effect that stopped it. What was done is then undone, or stays
    /// journaled for the next call to undo.
    pub fn prepare(
        &self,
        lock: &ClaimLock,
        allocation: &Allocation,
        node: &NodeView,
    ) -> Result<Record, ExecuteError> {
        let before = self.journal.get(&lock.uid)?;
        let gpus = before.iter().flat_map(Record::gpus).cloned();
        let wanted = allocation
            .devices
            .iter()
            .filter_map(|result| node.devices.get(&result.device))
            .map(|device| device.gpu().clone());
        let _gpus = self.lock_gpus(gpus.chain(wanted).collect())?;

        if let Some(before) = &before
            && before.is_adopted_as(allocation)
            && (before.phase, &before.boot_id) == (Phase::Prepared, &node.boot_id)
            && self.effects.holds(before)?
        {
            // Another driver's state may not have had its name.
            let named = Record { claim: allocation.claim.clone(), ..before.clone() };
            if named != *before {
                self.journal.put(&named)?;
            }
            self.write_cdi(&named)?;
            return Ok(named);
        }
        let held = self.journal.all()?;
        let planned = plan(allocation, node, held.iter().map(Arc::as_ref), |result| {
            self.naming.device(&lock.uid, result)
        })?;
        check::plan(&planned)?;

        match before {
            // Prepared in this boot as it would be now: only look whether it still is.
            Some(before) if is_same(&before, &planned) && self.effects.holds(&before)? => {
                self.write_cdi(&before)?;
                return Ok(before);
            }
            // Something else, or half of it, or from before a reboot.
            Some(before) => self.undo(&before, &node.boot_id)?,
            None => {}
        }
        let mut planned = self.effects.look(planned)?;
        take_over_shared_steps(&mut planned, &held);
        let (error, begun) = match self.execute(&planned) {
            Ok(prepared) => return Ok(prepared),
            Err(failed) => *failed,
        };
        // The journal has the plan, so that a failure here is made good later.
        if let Err(second) = self.undo(&begun, &node.boot_id) {
            tracing::warn!(claim = %planned.claim, %second, "not undone yet");
        }
        Err(error)
    }

    /// Undoes a claim. Nothing to undo is success, whatever is left of it is removed.
    ///
    /// # Errors
    /// The effect that stopped it; the record stays, and the call can be repeated.
    pub fn unprepare(&self, lock: &ClaimLock, boot: &BootId) -> Result<(), ExecuteError> {
        let Some(record) = self.journal.get(&lock.uid)? else {
            return Ok(self.remove_cdi(&lock.uid)?);
        };
        let _gpus = self.lock_gpus(record.gpus().into_iter().cloned().collect())?;
        self.undo(&record, boot)
    }

    /// Brings the machine in line with the journal after a start: half-prepared and
    /// half-unprepared claims are undone (the kubelet was told nothing of the first, and
    /// repeats its call), prepared ones get their CDI spec back, specs of no claim go.
    /// Claims at work in another process are left alone. Gives what could not be mended.
    ///
    /// # Errors
    /// When the journal can't be read at all.
    pub fn recover(&self, boot: &BootId) -> Result<Vec<ExecuteError>, ExecuteError> {
        let mut failures = Vec::new();
        for record in self.journal.all()? {
            if let Err(error) = self.recover_one(&record, boot) {
                tracing::warn!(claim = %record.claim, %error, "claim not recovered");
                failures.push(error);
            }
        }
        for tidied in [self.remove_stray_specs(), self.remove_leftovers()] {
            failures.extend(tidied.err());
        }
        Ok(failures)
    }

    fn recover_one(&self, record: &Record, boot: &BootId) -> Result<(), ExecuteError> {
        let Ok(lock) = self.lock_claim(&record.claim.uid, Duration::ZERO) else { return Ok(()) };
        // Read again under the lock: the other process may just have finished it.
        let Some(record) = self.journal.get(&lock.uid)? else { return Ok(()) };
        let _gpus = self.lock_gpus(record.gpus().into_iter().cloned().collect())?;
        match record.phase {
            // Only the newer version knows what belongs into its spec.
            Phase::Prepared if record.known_steps().is_none() => Ok(()),
            Phase::Prepared if record.boot_id == *boot => Ok(self.write_cdi(&record)?),
            // After a reboot the kubelet prepares again what it still needs. What the power
            // cut has left of a spec is of no use to anyone.
            Phase::Prepared => Ok(self.remove_cdi(&record.claim.uid)?),
            Phase::Preparing | Phase::Unpreparing => self.undo(&record, boot),
        }
    }

    fn remove_stray_specs(&self) -> Result<(), ExecuteError> {
        for (name, _) in self.files.list(&self.naming.dir)? {
            let uid = name
                .to_str()
                .and_then(|name| gpu_dra_cdi::claim_of_file_name(&self.naming.driver, name));
            let Some(uid) = uid else { continue };
            let Ok(lock) = self.lock_claim(&uid, Duration::ZERO) else { continue };
            if self.journal.get(&lock.uid)?.is_none() {
                tracing::info!(claim = %uid, "CDI spec of no claim removed");
                self.files.remove(&self.naming.path(&uid))?;
            }
        }
        Ok(())
    }

    /// Half-written files of a process that died. Under the claim's lock nobody writes them.
    fn remove_leftovers(&self) -> Result<(), ExecuteError> {
        for dir in [self.journal.dir(), &self.naming.dir] {
            for (name, becomes) in self.files.leftovers(dir)? {
                let becomes = becomes.to_string_lossy();
                // One may have been to take the place of the incumbent's spec.
                let ours = becomes.replace(".yaml", ".json");
                let uid = gpu_dra_cdi::claim_of_file_name(&self.naming.driver, &ours)
                    .or_else(|| Journal::claim_of_file_name(&becomes));
                let Some(uid) = uid else { continue };
                let Ok(_lock) = self.lock_claim(&uid, Duration::ZERO) else { continue };
                self.files.remove(&dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Does the plan. If it fails, gives the error, and the record of what was begun.
    fn execute(&self, planned: &Record) -> Result<Record, Box<(ExecuteError, Record)>> {
        let mut begun = Record { steps: Vec::new(), ..planned.clone() };
        match self.execute_into(planned, &mut begun) {
            Ok(()) => Ok(begun),
            Err(error) => Err(Box::new((error, begun))),
        }
    }

    /// `begun` has every step that may have left something, whatever happens.
    fn execute_into(&self, planned: &Record, begun: &mut Record) -> Result<(), ExecuteError> {
        self.journal.put(planned)?;
        for step in known_steps(planned)? {
            match self.effects.apply(step, begun) {
                Ok(done) => begun.steps.push(Step::Known(outcome(step, done))),
                Err(error) => {
                    if !error.leaves_nothing() {
                        begun.steps.push(Step::Known(step.clone()));
                    }
                    return Err(error.into());
                }
            }
        }
        self.write_cdi(begun)?;
        let prepared = Record { phase: Phase::Prepared, ..begun.clone() };
        self.journal.put(&prepared)?;
        *begun = prepared;
        Ok(())
    }

    /// In reverse: steps, CDI spec, and the record last.
    fn undo(&self, record: &Record, boot: &BootId) -> Result<(), ExecuteError> {
        let mut steps = known_steps(record)?;
        steps.retain(|step| step.has_undo());
        if !steps.is_empty() && record.phase != Phase::Unpreparing {
            self.journal.put(&Record { phase: Phase::Unpreparing, ..record.clone() })?;
        }
        // A reboot undoes every step by itself.
        if record.boot_id == *boot {
            if steps.iter().any(|step| step.is_shared()) {
                let held = self.journal.all()?;
                let has = |other: &Record, step: &KnownStep| {
                    other.claim.uid != record.claim.uid
                        && other.boot_id == *boot
                        && other.has_step(step)
                };
                steps
                    .retain(|step| !step.is_shared() || !held.iter().any(|other| has(other, step)));
            }
            for step in steps.into_iter().rev() {
                self.effects.undo(step)?;
            }
        }
        self.remove_cdi(&record.claim.uid)?;
        Ok(self.journal.remove(&record.claim.uid)?)
    }

    /// Writes the spec unless the same bytes are there already.
    fn write_cdi(&self, record: &Record) -> Result<(), ExecuteError> {
        let path = self.naming.path(&record.claim.uid);
        let spec = self.effects.cdi_spec(record)?;
        let theirs = self.naming.incumbents_path(&record.claim.uid);
        if self.files.read(&theirs)?.is_some() {
            // Ours takes the place of theirs at one stroke, so that there is one at any time.
            self.files.replace(&theirs, &spec, 0o644)?;
            self.files.rename(&theirs, &path)?;
        }
        if self.files.read(&path)?.as_deref() != Some(&spec) {
            // Not synced: after a reboot the kubelet prepares again, and until then no process
            // dies with it.
            self.files.replace_unsynced(&path, &spec, 0o644)?;
        }
        Ok(())
    }

    fn remove_cdi(&self, uid: &ClaimUid) -> Result<(), FileError> {
        // What a power cut brings back is a spec of no claim, and goes at the next start.
        self.files.remove_unsynced(&self.naming.path(uid))?;
        self.files.remove_unsynced(&self.naming.incumbents_path(uid))?;
        Ok(())
    }

    fn lock_gpus(&self, mut gpus: Vec<GpuUuid>) -> Result<Vec<LockGuard>, LockError> {
        // In one order everywhere, or two claims could wait for each other.
        gpus.sort();
        gpus.dedup();
        gpus.iter().map(|gpu| self.locks.lock(gpu.as_str(), PATIENCE)).collect()
    }
}

fn is_same(before: &Record, planned: &Record) -> bool {
    before.phase == Phase::Prepared
        && before.boot_id == planned.boot_id
        && before.plans_the_same(planned)
}

/// A step that another claim has done already is done, and what is to be put back in the end
/// is what that claim found.
fn take_over_shared_steps(planned: &mut Record, held: &[Arc<Record>]) {
    let others = || held.iter().filter(|other| other.claim.uid != planned.claim.uid);
    let known = |step: &KnownStep| {
        let same_boot = others().filter(|other| other.boot_id == planned.boot_id);
        let mut steps = same_boot.flat_map(|other| other.known_steps().unwrap_or_default());
        steps.find(|other| other.as_planned() == step.as_planned()).cloned()
    };
    let steps = planned.steps.iter().map(|step| match step {
        Step::Known(step) if step.is_shared() => {
            Step::Known(known(step).unwrap_or_else(|| step.clone()))
        }
        step => step.clone(),
    });
    planned.steps = steps.collect();
}

/// The step with what came of it.
fn outcome(step: &KnownStep, done: Done) -> KnownStep {
    match (step.clone(), done) {
        (KnownStep::CreatePartition { gpu, partition, switch_mode, .. }, Done::Made(device)) => {
            KnownStep::CreatePartition { gpu, partition, switch_mode, made: Some(device) }
        }
        (step, _) => step,
    }
}

fn known_steps(record: &Record) -> Result<Vec<&KnownStep>, Refusal> {
    record.known_steps().ok_or_else(|| Refusal::FromNewerVersion(record.claim.clone()))
}
