//! The kubelet's plugin manager: looks at the registration directory, registers what is new,
//! forgets what is gone, tries again what failed.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_model::DriverName;
use tokio::time::Instant;

use super::{DraApi, Plugin, RegisterError, register};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);

/// What happened to a plugin.
#[derive(Debug)]
pub enum Event {
    /// It can be called.
    Registered(Plugin),
    /// Its registration socket is gone, or was made anew: it may no longer be called.
    Gone {
        /// The driver's name.
        driver: DriverName,
        /// Its service socket.
        endpoint: PathBuf,
    },
    /// It could not be registered, and is tried again.
    Failed {
        /// Why.
        error: RegisterError,
        /// When.
        retry_in: Duration,
    },
}

/// A kubelet's view of one `plugins_registry` directory. A restarted kubelet is a new one.
#[derive(Debug)]
pub struct Watch {
    directory: PathBuf,
    known_apis: Vec<DraApi>,
    interval: Duration,
    sockets: BTreeMap<PathBuf, Socket>,
    events: VecDeque<Event>,
}

/// Tells a socket from one made later under the same path. Inode numbers are used again, the
/// time of making is not (nor does a chmod change it).
type Made = (u64, u64, i64, i64);

#[derive(Debug)]
struct Socket {
    made: Made,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting { until: Instant, retry: Duration },
    Registered { driver: DriverName, endpoint: PathBuf },
}

impl Watch {
    /// Watches `directory`, looking every `interval` (the kubelet: 1 s). `known_apis` are
    /// the DRA versions that this kubelet speaks, [`DraApi::ALL`] for a current one.
    #[must_use]
    pub fn new(directory: &Path, interval: Duration, known_apis: &[DraApi]) -> Self {
        Self {
            directory: directory.into(),
            known_apis: known_apis.into(),
            interval,
            sockets: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Waits for the next event. Cancel safe: a registration cut short is made again.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let found = sockets(&self.directory);
            self.forget(&found);
            self.register(found).await;
            if self.events.is_empty() {
                tokio::time::sleep(self.interval).await;
            }
        }
    }

    fn forget(&mut self, found: &BTreeMap<PathBuf, Made>) {
        let events = &mut self.events;
        self.sockets.retain(|path, socket| {
            let stays = found.get(path) == Some(&socket.made);
            if let (false, State::Registered { driver, endpoint }) = (stays, &socket.state) {
                let (driver, endpoint) = (driver.clone(), endpoint.clone());
                events.push_back(Event::Gone { driver, endpoint });
            }
            stays
        });
    }

    async fn register(&mut self, found: BTreeMap<PathBuf, Made>) {
        for (path, made) in found {
            let now = Instant::now();
            let retry = match self.sockets.get(&path).map(|socket| &socket.state) {
                None => FIRST_RETRY,
                Some(State::Waiting { until, retry }) if *until <= now => *retry,
                Some(_) => continue,
            };
            let admit = |plugin: &Plugin| self.admit(plugin);
            let state = match register(&path, &self.known_apis, admit).await {
                Ok(plugin) => {
                    let driver = plugin.driver().clone();
                    let endpoint = plugin.endpoint().to_path_buf();
                    self.events.push_back(Event::Registered(plugin));
                    State::Registered { driver, endpoint }
                }
                Err(error) => {
                    self.events.push_back(Event::Failed { error, retry_in: retry });
                    State::Waiting {
                        until: Instant::now() + retry,
                        retry: (retry * 2).min(LAST_RETRY),
                    }
                }
            };
            self.sockets.insert(path, Socket { made, state });
        }
    }

    /// One instance may not take over the service socket of another.
    fn admit(&self, plugin: &Plugin) -> Result<(), String> {
        let taken = self.sockets.values().any(|socket| {
            matches!(&socket.state, State::Registered { driver, endpoint }
                if driver == plugin.driver() && endpoint == plugin.endpoint())
        });
        if taken {
            let (endpoint, driver) = (plugin.endpoint().display(), plugin.driver());
            return Err(format!(
                "endpoint {endpoint} already registered for DRA driver plugin {driver}"
            ));
        }
        Ok(())
    }
}

/// All sockets below `directory` whose names don't begin with a dot. What can't be read
/// counts as not there: it is looked at again in a moment.
fn sockets(directory: &Path) -> BTreeMap<PathBuf, Made> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(metadata) = entry.metadata() else { continue };
            if hidden {
            } else if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.file_type().is_socket() {
                let m = &metadata;
                found.insert(entry.path(), (m.dev(), m.ino(), m.mtime(), m.mtime_nsec()));
            }
        }
    }
    found
}
