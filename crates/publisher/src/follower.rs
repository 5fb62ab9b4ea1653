//! The one watch on our own slices: a list when it starts, then events. A watch that ends
//! is resumed where it was, one that fails after a back-off, and one that the server
//! refuses (410 Gone, or a resource version from before a restored backup) with a new list.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use gpu_dra_slices::PoolRef;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::runtime::watcher::{self, Config, Event, watcher};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::error::PublishError;

/// A resumed watch says nothing while nothing happens; if it hasn't failed for so long, it
/// is taken to be working.
const SETTLING: Duration = Duration::from_secs(5);

/// What the watch has to say.
pub(crate) enum Notice {
    /// Something about our slices.
    Event(Box<Event<ResourceSlice>>),
    /// It failed and will be resumed later.
    Broken(PublishError),
    /// After a failure it works again.
    Settled,
}

pub(crate) struct Follower {
    api: Api<ResourceSlice>,
    config: Config,
    what: String,
    stream: BoxStream<'static, watcher::Result<Event<ResourceSlice>>>,
    backoff: Backoff,
    resume_at: Option<Instant>,
    settles_at: Option<Instant>,
    broken: bool,
}

impl Follower {
    pub(crate) fn new(api: Api<ResourceSlice>, pool: &PoolRef) -> Self {
        let fields = format!("spec.driver={},spec.nodeName={}", pool.driver, pool.node);
        let config = Config::default().fields(&fields);
        Self {
            stream: watcher(api.clone(), config.clone()).boxed(),
            what: format!("resourceslices of node {}", pool.node),
            api,
            config,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
            resume_at: None,
            settles_at: None,
            broken: false,
        }
    }

    /// Starts anew with a list, since what we know may be out of date.
    pub(crate) fn restart(&mut self) {
        self.stream = watcher(self.api.clone(), self.config.clone()).boxed();
    }

    /// The next thing it has to say. Nothing is lost when this is dropped half-way.
    pub(crate) async fn next(&mut self) -> Notice {
        loop {
            if let Some(at) = self.resume_at {
                sleep_until(at).await;
                self.resume_at = None;
                self.settles_at = Some(Instant::now() + SETTLING);
            }
            let settles_at = self.settles_at.unwrap_or_else(Instant::now);
            tokio::select! {
                item = self.stream.next() => match item {
                    Some(Ok(event)) => {
                        // `Init` comes before the list is asked for and proves nothing.
                        if self.broken && !matches!(event, Event::Init) {
                            self.settles_at = Some(Instant::now());
                        }
                        return Notice::Event(Box::new(event));
                    }
                    Some(Err(error)) => return self.failed(error),
                    // This stream never ends by itself; if it did, a new one must follow.
                    None => self.restart(),
                },
                () = sleep_until(settles_at), if self.settles_at.is_some() => {
                    self.settles_at = None;
                    self.broken = false;
                    self.backoff.reset();
                    return Notice::Settled;
                }
            }
        }
    }

    fn failed(&mut self, error: watcher::Error) -> Notice {
        let (verb, source) = match error {
            watcher::Error::InitialListFailed(source) => ("list", source),
            watcher::Error::WatchStartFailed(source) => {
                if matches!(source, kube::Error::Api(_)) {
                    self.restart();
                }
                ("watch", source)
            }
            watcher::Error::WatchFailed(source) => ("watch", source),
            watcher::Error::WatchError(status) => ("watch", kube::Error::Api(status)),
            watcher::Error::NoResourceVersion => {
                let status = kube::core::Status::failure("no resourceVersion in the answer", "");
                ("watch", kube::Error::Api(status.boxed()))
            }
        };
        let error = PublishError::new(verb, &self.what, source);
        let wait = self.backoff.next().max(error.retry_after().unwrap_or_default());
        self.resume_at = Some(Instant::now() + wait);
        self.settles_at = None;
        self.broken = true;
        Notice::Broken(error)
    }
}
