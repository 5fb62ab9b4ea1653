//! Follows the health of the GPUs: events and readings go into the tracker, and what it says
//! becomes taints of the pool that is published, the devices' states, and Events.
//!
//! It is the one place where survey and health meet. It has no thread and no clock of its own:
//! [`run`](crate::health_run) gives it both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gpu_dra_executor::Journal;
use gpu_dra_health::{
    Cleared, EventKind, GpuEvent, HealthReading, Occasion, Part, Policy, Report, Tracker,
    UnixSeconds,
};
use gpu_dra_host::{FileError, Files};
use gpu_dra_model::inventory::{GpuInstance, Mig};
use gpu_dra_model::{BootId, DeviceKind, DeviceName, GpuUuid};
use gpu_dra_nvml::{Gpus, Heard, OpenError, Watching};
use gpu_dra_slices::PackedPool;
use tokio::sync::watch;

use crate::asking::{self, Asker};
use crate::clear_request::{ClearRequest, Target};
use crate::events::{Announcer, Happening, Severity};
use crate::health_news::{Change, Reports, changes};
use crate::health_store::HealthStore;
use crate::health_taints::{keep_out, with_taints};
use crate::survey::Survey;

/// What the health watch hears of.
#[derive(Debug)]
pub enum News {
    /// What the node offers has changed.
    Survey(Arc<Survey>),
    /// A GPU has said something.
    Heard(Heard),
    /// The Node's annotation for requests to clear.
    Asked {
        /// As it is now.
        value: Option<String>,
        /// It was there before anything was wrong, so it is about something else.
        is_old: bool,
    },
    /// The end.
    Stop,
}

/// What is to be told, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What the node offers.
    pub survey: Arc<Survey>,
    /// The same with taints: what should be published.
    pub pool: Arc<PackedPool>,
    /// The health of every device.
    pub reports: BTreeMap<DeviceName, Report>,
}

/// Where the latest is told; None until the first survey.
pub type ToldReceiver = watch::Receiver<Option<Arc<Told>>>;

/// What a health watch needs.
pub struct Parts<'a> {
    /// The GPUs.
    pub gpus: Arc<dyn Gpus>,
    /// Where health is kept.
    pub files: Arc<dyn Files>,
    /// The folder that it is kept in.
    pub dir: &'a Path,
    /// The running kernel's boot.
    pub boot_id: BootId,
    /// What is done about what.
    pub policy: Policy,
    /// Whose devices they are.
    pub journal: Arc<Journal>,
    /// Where people are told.
    pub announcer: Announcer,
}

/// The health of this node's GPUs.
pub struct HealthWatch {
    gpus: Asker,
    journal: Arc<Journal>,
    announcer: Announcer,
    tracker: Tracker,
    store: HealthStore,
    asked: Option<String>,
    survey: Option<Arc<Survey>>,
    /// Since when GPUs of the survey are missing.
    missing_since: BTreeMap<GpuUuid, UnixSeconds>,
    /// As told last.
    reports: Reports,
    told: watch::Sender<Option<Arc<Told>>>,
    /// GPUs should be registered for events anew.
    register: bool,
}

impl HealthWatch {
    /// With what was wrong before the agent was restarted. It tells through the receiver,
    /// from the first survey on.
    ///
    /// # Errors
    /// When what is kept can't be read.
    pub fn new(parts: Parts<'_>) -> Result<(Self, ToldReceiver), FileError> {
        let Parts { gpus, files, dir, boot_id, policy, journal, announcer } = parts;
        let (store, tracker) = HealthStore::open(files, dir, boot_id, policy)?;
        let (told, receiver) = watch::channel(None);
        let watch = Self {
            gpus: Asker::new(gpus, asking::PATIENCE),
            journal,
            announcer,
            tracker,
            asked: store.asked(),
            store,
            survey: None,
            missing_since: BTreeMap::new(),
            reports: Reports::new(),
            told,
            register: false,
        };
        Ok((watch, receiver))
    }

    /// Takes in what has happened, and tells what has become of it.
    pub fn note(&mut self, news: News, now: UnixSeconds) {
        match news {
            News::Survey(survey) => {
                self.survey(survey, now);
                self.read_each(Occasion::News, now);
            }
            News::Heard(Heard::Event(event)) => {
                self.event(&event, now);
                self.tell();
                if self.read(&event.gpu, Occasion::News, now) {
                    self.tell();
                }
            }
            News::Heard(Heard::Watching(watching)) => {
                self.watching(&watching, now);
                self.tell();
            }
            News::Asked { value, is_old } => {
                if value == self.asked {
                    return;
                }
                self.store.save_asked(value.as_deref());
                self.asked.clone_from(&value);
                if let Some(text) = value.filter(|_| !is_old) {
                    self.clear(&text);
                    self.tell();
                }
            }
            News::Stop => {}
        }
    }

    /// Asks every GPU how it is, and tells what is new: one round, of which each has the same
    /// time to the next.
    pub fn read_all(&mut self, now: UnixSeconds) {
        self.read_each(Occasion::Round, now);
    }

    fn read_each(&mut self, occasion: Occasion, now: UnixSeconds) {
        let Some(survey) = self.survey.clone() else { return };
        // A driver that isn't there must not be opened for this; one without GPUs has lost them.
        if survey.trouble.is_none() || !survey.missing.is_empty() {
            let there = survey.inventory.gpus.iter().map(|gpu| &gpu.uuid);
            for gpu in there.chain(&survey.missing) {
                self.read(gpu, occasion, now);
            }
        }
        self.tell();
    }

    /// Whether GPUs should be registered for events anew: one was reset, or has come back.
    pub fn must_register(&mut self) -> bool {
        std::mem::take(&mut self.register)
    }

    fn survey(&mut self, survey: Arc<Survey>, now: UnixSeconds) {
        self.register = self.survey.is_some();
        self.missing_since.retain(|gpu, _| survey.missing.contains(gpu));
        for gpu in &survey.missing {
            self.missing_since.entry(gpu.clone()).or_insert(now);
        }
        if survey.trouble.is_none() {
            let is_there =
                |gpu: &GpuUuid| survey.inventory.gpu(gpu).is_some() || survey.missing.contains(gpu);
            self.tracker.retain(is_there);
        }
        // Devices that are new are no news, nor is what was wrong before a restart.
        let known = std::mem::take(&mut self.reports);
        self.reports = self.reports_of(&survey);
        for (name, report) in known {
            if let Some(now) = self.reports.get_mut(&name) {
                *now = report;
            }
        }
        self.survey = Some(survey);
    }

    fn event(&mut self, event: &GpuEvent, now: UnixSeconds) {
        let instances = match event.instance {
            Some(_) => self.instances(&event.gpu),
            None => Vec::new(),
        };
        self.tracker.event(event, &instances, now);
        let same = |(gpu, kind, _): &(&GpuUuid, _, u64)| **gpu == event.gpu && *kind == event.kind;
        let times = self.tracker.counts().find(same).map_or(0, |(_, _, times)| times);
        if event.kind == EventKind::MigConfigChange {
            tracing::debug!(gpu = %event.gpu, times, "MIG devices have changed");
        } else {
            tracing::info!(gpu = %event.gpu, event = ?event.kind, times, "GPU event");
        }
    }

    /// The GPU's instances now, or as they were seen last.
    fn instances(&mut self, gpu: &GpuUuid) -> Vec<GpuInstance> {
        let uuid = gpu.clone();
        let why = match self.gpus.ask(gpu, move |gpus| gpus.gpu_instances(&uuid)) {
            Ok(Ok(instances)) => return instances,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(%gpu, error = why, "instances are taken from the last survey");
        let seen = self.survey.as_ref().and_then(|survey| survey.inventory.gpu(gpu));
        match seen.map(|gpu| &gpu.mig) {
            Some(Mig::Supported { instances, .. }) => instances.clone(),
            Some(Mig::Unsupported) | None => Vec::new(),
        }
    }

    fn watching(&mut self, watching: &Watching, now: UnixSeconds) {
        let (heard, unheard) = (watching.watched.len(), watching.unmonitored.len());
        tracing::info!(heard, unheard, "GPUs whose events are heard");
        for gpu in &watching.watched {
            self.tracker.monitoring(gpu, None, now);
        }
        for (gpu, error) in &watching.unmonitored {
            self.tracker.monitoring(gpu, Some(error.to_string()), now);
        }
    }

    /// Asks one GPU. True if that is news.
    fn read(&mut self, gpu: &GpuUuid, occasion: Occasion, now: UnixSeconds) -> bool {
        let uuid = gpu.clone();
        let why = match self.gpus.ask(gpu, move |gpus| gpus.health(&uuid)) {
            Ok(Ok(reading)) => return self.reading(gpu, &reading, occasion, now),
            // A driver that has no GPU at all.
            Ok(Err(OpenError::NoGpus | OpenError::GpusUnused { .. })) => {
                let lost = HealthReading { lost: Some(true), ..HealthReading::default() };
                return self.reading(gpu, &lost, occasion, now);
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(%gpu, error = why, "no health reading");
        self.tracker.unread(gpu, &why, occasion, now)
    }

    fn reading(
        &mut self,
        gpu: &GpuUuid,
        reading: &HealthReading,
        occasion: Occasion,
        now: UnixSeconds,
    ) -> bool {
        let is_news = self.tracker.reading(gpu, reading, occasion, now);
        self.register |= is_news && !reading.is_void();
        is_news
    }

    /// Does what a person has asked for.
    fn clear(&mut self, text: &str) {
        let message = match text.parse::<ClearRequest>() {
            Err(error) => format!("annotation clear-taint is {text:?}: {error}"),
            Ok(request) => match self.clear_request(&request) {
                Some(cleared) if !cleared.is_empty() => {
                    let was: Vec<_> = cleared
                        .iter()
                        .map(|cleared| format!("{} ({})", cleared.key, cleared.message))
                        .collect();
                    let message =
                        format!("{} was cleared as asked: {}", request.target, was.join(", "));
                    return self.announcer.announce(Severity::Normal, "TaintCleared", message);
                }
                Some(_) => format!(
                    "nothing to clear on {}: it has no such taint of its own; a taint of the whole \
                     GPU is cleared on the GPU",
                    request.target
                ),
                None => format!("nothing to clear: there is no device {}", request.target),
            },
        };
        self.announcer.announce(Severity::Warning, "NothingCleared", message);
    }

    /// None where there is no such device.
    fn clear_request(&mut self, request: &ClearRequest) -> Option<Vec<Cleared>> {
        let (gpu, parts) = match &request.target {
            Target::Gpu(gpu) => (gpu.clone(), vec![None]),
            Target::Device(name) => {
                let kind = self.survey.as_ref()?.view.devices.get(name)?;
                (kind.gpu().clone(), parts(kind))
            }
        };
        let key = request.key.as_deref();
        let cleared = parts.iter().flat_map(|part| self.tracker.clear(&gpu, part.as_ref(), key));
        Some(cleared.collect())
    }

    fn reports_of(&self, survey: &Survey) -> Reports {
        let report = |(name, kind): (&DeviceName, &DeviceKind)| {
            let mut report = self.tracker.report(kind);
            if let Some(since) = self.missing_since.get(kind.gpu()) {
                keep_out(&mut report, *since);
            }
            (name.clone(), report)
        };
        survey.view.devices.iter().map(report).collect()
    }

    /// Tells everybody what is new.
    fn tell(&mut self) {
        let Some(survey) = self.survey.clone() else { return };
        let reports = self.reports_of(&survey);
        for change in changes(&self.reports, &reports, &survey.view.devices) {
            self.announce(change);
        }
        self.reports.clone_from(&reports);
        self.store.save(&self.tracker);
        let same = |told: &Arc<Told>| Arc::ptr_eq(&told.survey, &survey) && told.reports == reports;
        if self.told.borrow().as_ref().is_some_and(same) {
            return;
        }
        match with_taints(&survey.pool, &reports) {
            Ok(pool) => {
                self.told.send_replace(Some(Arc::new(Told { survey, pool, reports })));
            }
            Err(error) => tracing::error!(%error, "health not told"),
        }
    }

    /// On the Node, and on the pods that have one of the devices.
    fn announce(&self, change: Change) {
        let Change { severity, reason, devices, since, message } = change;
        let records = self.journal.all().unwrap_or_else(|error| {
            tracing::warn!(%error, "whose devices they are can't be read");
            Vec::new()
        });
        let holders = records
            .iter()
            .filter(|record| record.devices.iter().any(|held| devices.contains(&held.device)));
        let claims = holders.map(|record| record.claim.clone()).collect();
        let since = Some(since.0);
        self.announcer.tell(Happening { severity, reason, claims, since, message });
    }
}

/// Which parts of its GPU a device is; None for all of it. What is wrong with a compute
/// instance may be about it alone or, where it was the only one, about its GPU instance.
fn parts(kind: &DeviceKind) -> Vec<Option<Part>> {
    match kind {
        DeviceKind::Gpu { .. } | DeviceKind::Monitor { .. } => vec![None],
        DeviceKind::StaticMig { placement, device, .. } => [Some(device.compute), None]
            .map(|compute| Some(Part { placement: *placement, compute }))
            .to_vec(),
        DeviceKind::Partition { partition, .. } => {
            vec![Some(Part { placement: partition.placement, compute: None })]
        }
    }
}
