//! Gives a [`HealthWatch`] what makes it run: the GPUs' events, every new survey, the requests
//! of people, a thread that may block in NVML, and a clock. It decides nothing.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpu_dra_health::{Policy, UnixSeconds};
use gpu_dra_model::NodeName;
use gpu_dra_nvml::{Driver, Events, Heard};
use tokio::sync::watch;

use crate::clear_request;
use crate::crew::Crew;
use crate::health::{HealthWatch, News, ToldReceiver};
use crate::metrics::EventMetrics;
use crate::survey::Survey;

/// Requests to clear are looked for after so many readings, while something is tainted.
const READINGS_PER_REQUEST: u32 = 3;

/// A health watch at work; it ends when this is dropped.
pub(crate) struct HealthTask {
    news: Sender<News>,
    /// When the last round of readings ended.
    pub(crate) rounds: watch::Receiver<Instant>,
}

impl Drop for HealthTask {
    fn drop(&mut self) {
        // An error says that it has ended by itself.
        drop(self.news.send(News::Stop));
    }
}

/// Starts it. GPUs are read each `interval`; their events are counted, with what the policy
/// does about them.
pub(crate) fn start(
    crew: &Crew,
    (watch, told): (HealthWatch, ToldReceiver),
    driver: Arc<Driver>,
    survey: watch::Receiver<Option<Arc<Survey>>>,
    (client, node): (kube::Client, NodeName),
    interval: Duration,
    (policy, counted): (Policy, EventMetrics),
) -> io::Result<HealthTask> {
    let (news, receiver) = mpsc::channel();
    let heard = news.clone();
    let duty = crew.duty("listening to the GPUs' events");
    let events = Events::start(driver, move |said| {
        // It is there for as long as this is.
        let _duty = &duty;
        if let Heard::Event(event) = &said {
            counted.note(event, policy.event(event.kind));
        }
        // An error says that nobody listens any more.
        drop(heard.send(News::Heard(said)));
    })?;
    let (round, rounds) = watch::channel(Instant::now());
    crew.spawn_blocking("the health watch", move || {
        run(watch, &receiver, &events, interval, &round);
    });
    crew.spawn("handing surveys on to health", hand_on(survey, news.clone()));
    let requests =
        clear_request::follow(client, node, told, news.clone(), interval * READINGS_PER_REQUEST);
    crew.spawn("looking for requests to clear", requests);
    Ok(HealthTask { news, rounds })
}

fn run(
    mut watch: HealthWatch,
    news: &Receiver<News>,
    events: &Events,
    interval: Duration,
    round: &watch::Sender<Instant>,
) {
    let mut next = Instant::now() + interval;
    loop {
        match news.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(News::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(news) => watch.note(news, now()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Also where news never stop.
        if Instant::now() >= next {
            watch.read_all(now());
            round.send_replace(Instant::now());
            next = Instant::now() + interval;
        }
        if watch.must_register() {
            events.register_again();
        }
    }
}

async fn hand_on(mut survey: watch::Receiver<Option<Arc<Survey>>>, news: Sender<News>) {
    loop {
        let now = survey.borrow_and_update().clone();
        if let Some(now) = now
            && news.send(News::Survey(now)).is_err()
        {
            return;
        }
        if survey.changed().await.is_err() {
            return;
        }
    }
}

fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
