//! The leader's work: it hears, and brings DeviceClasses and statuses in line when something
//! differs. It has no timer but those of writes that are due. Dropping it stops all writing
//! at once: what it was about to send is not sent.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::judge::{Judgement, has, judge};
use super::state::State;
use super::status::{Standing, only_counts_differ};
use super::watches::Watches;
use super::writer::{Applied, Writer};
use crate::declare::Origin;
use crate::error::RequestError;
use crate::metrics::Metrics;
use crate::run::Settings;

/// News that come together are dealt with together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// After an error, no write before; doubled with each, up to the second.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How the last write of a class went: not tried again before the class, or what is wanted of
/// it, is another; unless it may be allowed by then.
struct Attempt {
    wanted: DeviceClass,
    seen: Option<String>,
    standing: Standing,
    /// False where the same write may go better, with neither of the two changed.
    is_last: bool,
}

/// Keeps the classes.
pub(crate) struct Keeper {
    metrics: Metrics,
    watches: Watches,
    writer: Writer,
    state: State,
    attempts: HashMap<(Origin, String), Attempt>,
    /// When each GpuClass's status was last written.
    told: HashMap<String, Instant>,
    count_pace: Duration,
    /// When to look next; None while all is well.
    due: Option<Instant>,
    wait: Duration,
    not_before: Option<Instant>,
    strangers: u64,
    /// What was told of other owners' classes.
    warned: HashMap<String, String>,
}

impl Keeper {
    pub(crate) fn new(
        client: Client,
        settings: &Settings,
        standard: Vec<DeviceClass>,
        metrics: Metrics,
    ) -> Self {
        Self {
            metrics,
            watches: Watches::new(&client, &settings.driver),
            writer: Writer::new(client),
            state: State::new(settings.driver.clone(), standard, settings.fleet_classes),
            attempts: HashMap::new(),
            told: HashMap::new(),
            count_pace: settings.count_pace,
            due: None,
            wait: FIRST_WAIT,
            not_before: None,
            strangers: 0,
            warned: HashMap::new(),
        }
    }

    /// Never ends by itself.
    pub(crate) async fn run(mut self) {
        loop {
            let due = self.due.filter(|_| self.state.synced.device_classes);
            tokio::select! {
                news = self.watches.next() => {
                    self.state.learn(news);
                    self.look_at(Instant::now() + DEBOUNCE);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.due = None;
                    let reconciled = self.reconcile().await;
                    self.metrics.reconciled(reconciled.is_ok());
                    match reconciled {
                        Ok(()) => {
                            self.wait = FIRST_WAIT;
                            self.not_before = None;
                        }
                        Err(error) => {
                            warn!(error = error.in_full(), "can't bring the classes in line");
                            let again = Instant::now() + self.wait;
                            self.not_before = Some(again);
                            self.wait = (self.wait * 2).min(LONGEST_WAIT);
                            self.look_at(again);
                        }
                    }
                }
            }
        }
    }

    fn look_at(&mut self, at: Instant) {
        let at = self.not_before.map_or(at, |earliest| at.max(earliest));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    async fn reconcile(&mut self) -> Result<(), RequestError> {
        self.warn_of_strangers();
        // What can't be done to one object is tried again, and keeps none of the others waiting.
        let mut first = Ok(());
        for class in self.state.left_over() {
            next(&mut first, self.delete(&class).await)?;
        }
        let wanted = self.state.wanted();
        self.attempts.retain(|(origin, name), _| {
            let is = |(o, class): &(Origin, DeviceClass)| {
                o == origin && class.metadata.name.as_ref() == Some(name)
            };
            wanted.iter().any(is)
        });
        for (origin, class) in wanted {
            next(&mut first, self.bring_in_line(origin, class).await)?;
        }
        for name in self.state.declared.keys().cloned().collect::<Vec<_>>() {
            next(&mut first, self.tell(&name).await)?;
        }
        next(&mut first, self.warn_of_unguarded().await)?;
        first
    }

    async fn delete(&mut self, class: &DeviceClass) -> Result<(), RequestError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        match self.writer.delete(class).await {
            Ok(()) => {
                info!(class = name, "deleted: nothing declares it any more");
                self.state.device_classes.remove(name);
                Ok(())
            }
            // It is another by now: the watch will tell.
            Err(RequestError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn bring_in_line(
        &mut self,
        origin: Origin,
        wanted: DeviceClass,
    ) -> Result<(), RequestError> {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let at = (origin, name.clone());
        let live = self.state.device_classes.get(&name);
        let seen = live.and_then(|live| live.metadata.resource_version.clone());
        let is_same =
            |attempt: &Attempt| attempt.is_last && attempt.wanted == wanted && attempt.seen == seen;
        let (standing, seen) = match judge(&wanted, origin, live) {
            Judgement::Good => (Standing::Applied, seen),
            Judgement::Foreign(whose) => (Standing::Foreign(whose), seen),
            Judgement::Shared(manager) => {
                (Standing::Contested(format!("{manager} has set fields of its spec")), seen)
            }
            Judgement::Write if self.attempts.get(&at).is_some_and(is_same) => return Ok(()),
            Judgement::Write => match self.writer.apply(&wanted, live).await {
                Ok(Applied::Stored(stored)) => {
                    info!(class = name, "applied");
                    let standing = match has(&stored, &wanted) {
                        true => Standing::Applied,
                        false => Standing::Dropped,
                    };
                    let seen = stored.metadata.resource_version.clone();
                    self.state.put_device_class(*stored);
                    (standing, seen)
                }
                Ok(Applied::WasThere(theirs)) => {
                    let seen = theirs.metadata.resource_version.clone();
                    self.state.put_device_class(*theirs);
                    (Standing::Foreign("somebody else was faster".to_owned()), seen)
                }
                Err(error @ RequestError::Conflict { .. }) => {
                    (Standing::Contested(error.server_words()), seen)
                }
                Err(error @ RequestError::Refused { .. }) => {
                    (Standing::Refused(error.server_words()), seen)
                }
                // It may be allowed later, with nothing about the class changed.
                Err(error @ RequestError::Forbidden { .. }) => {
                    let standing = Standing::Refused(error.server_words());
                    self.attempts.insert(at, Attempt { wanted, seen, standing, is_last: false });
                    return Err(error);
                }
                Err(error) => return Err(error),
            },
        };
        let is_news = self.attempts.get(&at).is_none_or(|attempt| attempt.standing != standing);
        if is_news && standing != Standing::Applied {
            warn!(class = name, ?standing, "left alone");
        }
        self.attempts.insert(at, Attempt { wanted, seen, standing, is_last: true });
        Ok(())
    }

    /// Writes the status of a GpuClass if it is another; mere counts not too often.
    async fn tell(&mut self, name: &str) -> Result<(), RequestError> {
        let now = Instant::now();
        let attempt = self.attempts.get(&(Origin::GpuClass, name.to_owned()));
        let standing = attempt.map(|attempt| &attempt.standing);
        let Some(status) = self.state.status(name, standing, &Time(Timestamp::now())) else {
            return Ok(());
        };
        let Some(declared) = self.state.declared.get(name) else { return Ok(()) };
        let old = declared.class.known_status();
        if old.as_ref() == Some(&status) {
            return Ok(());
        }
        if let (Some(old), Some(told)) = (&old, self.told.get(name))
            && only_counts_differ(old, &status)
            && now < *told + self.count_pace
        {
            let at = *told + self.count_pace;
            self.look_at(at);
            return Ok(());
        }
        match self.writer.status(&declared.class, &status).await {
            Ok(class) => {
                self.told.insert(name.to_owned(), now);
                self.state.put_gpu_class(class);
                Ok(())
            }
            // It was deleted or made anew meanwhile: the watch will tell.
            Err(RequestError::NotFound { .. } | RequestError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An event on each class of another owner that any other driver's devices break.
    async fn warn_of_unguarded(&mut self) -> Result<(), RequestError> {
        let unguarded = &self.state.unguarded;
        self.warned.retain(|name, told| unguarded.get(name) == Some(told));
        for (name, message) in unguarded {
            let Some(class) = self.state.device_classes.get(name) else { continue };
            if self.warned.contains_key(name) {
                continue;
            }
            warn!(class = name, "{message}");
            match self.writer.event(class, message, &Time(Timestamp::now())).await {
                Ok(()) => {}
                // The log has it.
                Err(error @ (RequestError::Forbidden { .. } | RequestError::Refused { .. })) => {
                    warn!(error = error.in_full(), "no Event of this");
                }
                Err(error) => return Err(error),
            }
            self.warned.insert(name.clone(), message.clone());
        }
        Ok(())
    }

    fn warn_of_strangers(&mut self) {
        let strangers = self.state.strangers();
        if strangers > self.strangers {
            warn!(
                strangers,
                pool = self.state.pool_of_strangers(),
                "devices are published under the driver's name without the attribute type or \
                 with values that can't be read: a class that isn't guarded stops every pod; \
                 find who publishes them with kubectl get resourceslices"
            );
        }
        self.strangers = strangers;
    }
}

/// Keeps the first error in `first` and goes on to the next object, unless the API server
/// doesn't answer at all.
fn next(
    first: &mut Result<(), RequestError>,
    done: Result<(), RequestError>,
) -> Result<(), RequestError> {
    match done {
        Err(error) if !error.is_of_this_object() => Err(error),
        Err(error) if first.is_ok() => {
            *first = Err(error);
            Ok(())
        }
        Err(error) => {
            warn!(error = error.in_full(), "can't bring the classes in line");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
