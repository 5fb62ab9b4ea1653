//! The drivers that the kubelet knows: who is registered, who is connected, how their devices are, and whose
//! slices go because nobody answers for them any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use gpu_dra_kubelet::client::{CallError, DraApi, Event, HealthApi, Plugin, Watch};
use gpu_dra_kubelet::{HEALTH_TIMEOUT, HealthState};
use gpu_dra_model::DriverName;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Shared;
use crate::error::chain;
use crate::events::LabEvent;

/// A broken health stream is first tried again after this: most often the driver was only restarted.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Driver, pool and device.
type DeviceKey = (String, String, String);

#[derive(Debug)]
struct Instance {
    plugin: Plugin,
    connected: bool,
    monitor: AbortHandle,
}

#[derive(Debug, Clone)]
struct Health {
    state: HealthState,
    message: String,
    received: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of registration.
    instances: Vec<Instance>,
    /// Running countdowns to the deletion of a driver's slices.
    wipes: BTreeMap<String, AbortHandle>,
    health: BTreeMap<DeviceKey, Health>,
}

impl Drop for State {
    fn drop(&mut self) {
        for instance in &self.instances {
            instance.monitor.abort();
        }
        for wipe in self.wipes.values() {
            wipe.abort();
        }
    }
}

/// The registered drivers.
#[derive(Debug)]
pub(super) struct Plugins {
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Changes when health changes or a driver comes.
    changed: watch::Sender<u64>,
}

/// Registers and forgets drivers until aborted.
pub(super) async fn run(plugins: Arc<Plugins>) {
    let options = &plugins.shared.options;
    let directory = options.root.join("plugins_registry");
    let mut watch = Watch::new(&directory, options.timing.plugin_scan, &DraApi::ALL);
    loop {
        match watch.next().await {
            Event::Registered(plugin) => plugins.add(plugin),
            Event::Gone { driver, endpoint } => plugins.remove(&driver, &endpoint),
            Event::Failed { error, .. } => {
                let reason = chain(&error);
                tracing::warn!(reason, "driver not registered");
                plugins.shared.herald.tell(LabEvent::DriverRefused { reason });
            }
        }
    }
}

impl Plugins {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, state: Mutex::default(), changed: watch::Sender::new(0) }
    }

    /// Tells when health changes or a driver comes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The instance to call: the newest that is connected, else the newest.
    pub(super) fn get(&self, driver: &str) -> Option<Plugin> {
        let state = self.state();
        let mine = || state.instances.iter().rev().filter(|i| i.plugin.driver().as_str() == driver);
        let instance = mine().find(|instance| instance.connected).or_else(|| mine().next());
        instance.map(|instance| instance.plugin.clone())
    }

    /// A device's health as the pod status names it, with the driver's message.
    pub(super) fn health(&self, driver: &str, pool: &str, device: &str) -> (&'static str, String) {
        let key = (driver.to_owned(), pool.to_owned(), device.to_owned());
        match self.state().health.get(&key) {
            Some(health) if health.received.elapsed() < HEALTH_TIMEOUT => {
                let state = match health.state {
                    HealthState::Unknown => "Unknown",
                    HealthState::Healthy => "Healthy",
                    HealthState::Unhealthy => "Unhealthy",
                };
                (state, health.message.clone())
            }
            _ => ("Unknown", String::new()),
        }
    }

    fn add(self: &Arc<Self>, plugin: Plugin) {
        let driver = plugin.driver().as_str().to_owned();
        let endpoint = plugin.endpoint().display().to_string();
        let monitor = tokio::spawn(monitor(Arc::downgrade(self), plugin.clone()));
        let monitor = monitor.abort_handle();
        {
            let mut state = self.state();
            // Registered, so it has just answered.
            state.instances.push(Instance { plugin, connected: true, monitor });
            cancel_wipe(&mut state, &driver);
        }
        self.changed.send_modify(|count| *count += 1);
        self.shared.herald.tell(LabEvent::DriverRegistered { driver, endpoint });
    }

    fn remove(self: &Arc<Self>, driver: &DriverName, endpoint: &Path) {
        {
            let mut state = self.state();
            let index = state.instances.iter().position(|instance| {
                instance.plugin.driver() == driver && instance.plugin.endpoint() == endpoint
            });
            let Some(index) = index else { return };
            state.instances.remove(index).monitor.abort();
            self.check_wipe(&mut state, driver.as_str());
        }
        let driver = driver.as_str().to_owned();
        self.shared.herald.tell(LabEvent::DriverGone { driver });
    }

    fn set_connected(self: &Arc<Self>, driver: &str, endpoint: &PathBuf, connected: bool) {
        let mut state = self.state();
        for instance in &mut state.instances {
            if instance.plugin.endpoint() == endpoint {
                instance.connected = connected;
            }
        }
        self.check_wipe(&mut state, driver);
    }

    /// Starts or stops the countdown to the deletion of the driver's slices.
    fn check_wipe(self: &Arc<Self>, state: &mut State, driver: &str) {
        let usable =
            state.instances.iter().any(|i| i.connected && i.plugin.driver().as_str() == driver);
        if usable {
            cancel_wipe(state, driver);
            return;
        }
        if state.wipes.contains_key(driver) {
            return;
        }
        let (plugins, name) = (Arc::downgrade(self), driver.to_owned());
        let pause = self.shared.options.timing.slice_wipe;
        let wipe = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            if let Some(plugins) = plugins.upgrade() {
                plugins.shared.wipe_slices(Some(&name));
            }
        });
        state.wipes.insert(driver.to_owned(), wipe.abort_handle());
    }

    fn set_health(&self, driver: &str, devices: Vec<gpu_dra_kubelet::DeviceHealth>) {
        let mut changed = false;
        let mut state = self.state();
        for device in devices {
            let key = (
                driver.to_owned(),
                device.pool.as_str().to_owned(),
                device.device.as_str().to_owned(),
            );
            let health =
                Health { state: device.state, message: device.message, received: Instant::now() };
            let before = state.health.insert(key, health.clone());
            changed |= before.is_none_or(|before| {
                before.state != health.state || before.message != health.message
            });
        }
        drop(state);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The end of a stream makes all of the driver's devices unknown.
    fn clear_health(&self, driver: &str) {
        let mut state = self.state();
        let before = state.health.len();
        state.health.retain(|(of, _, _), _| of != driver);
        let changed = state.health.len() != before;
        drop(state);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cancel_wipe(state: &mut State, driver: &str) {
    if let Some(wipe) = state.wipes.remove(driver) {
        wipe.abort();
    }
}

/// Keeps the health stream of one instance open; by it the connection's state is seen.
async fn monitor(plugins: std::sync::Weak<Plugins>, plugin: Plugin) {
    let driver = plugin.driver().as_str().to_owned();
    let endpoint = plugin.endpoint().to_path_buf();
    let mut pause = FIRST_RETRY;
    loop {
        match plugin.watch_health(HealthApi::V1Alpha1).await {
            Ok(stream) => {
                let Some(kubelet) = plugins.upgrade() else { return };
                kubelet.set_connected(&driver, &endpoint, true);
                drop(kubelet);
                pause = FIRST_RETRY;
                let mut stream = pin!(stream);
                while let Some(Ok(devices)) = stream.next().await {
                    let Some(kubelet) = plugins.upgrade() else { return };
                    kubelet.set_health(&driver, devices);
                }
                let Some(kubelet) = plugins.upgrade() else { return };
                kubelet.clear_health(&driver);
                kubelet.set_connected(&driver, &endpoint, false);
            }
            Err(err) => {
                let Some(kubelet) = plugins.upgrade() else { return };
                kubelet.set_connected(&driver, &endpoint, is_unimplemented(&err));
                tracing::debug!(driver, error = chain(&err), "no health stream");
            }
        }
        tokio::time::sleep(pause).await;
        let Some(kubelet) = plugins.upgrade() else { return };
        pause = kubelet.shared.options.timing.health_retry;
    }
}

/// A driver without the health service has answered, so it is connected.
fn is_unimplemented(err: &CallError) -> bool {
    matches!(err, CallError::Rpc { source, .. } if source.code() == tonic::Code::Unimplemented)
}
