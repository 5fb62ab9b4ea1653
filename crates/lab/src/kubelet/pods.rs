//! One worker per pod of this node, from its binding to the moment nothing of it is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::claims::PodClaim;
use super::plugins::Plugins;
use super::{NAME, Shared, status};
use crate::api::{DeleteOptions, Notice};
use crate::control::{self, finished, is_deleting, text};
use crate::events::LabEvent;
use crate::kinds::POD;
use crate::runtime::Container;
use crate::selector::Selector;
use crate::store::Change;

/// The pod as last seen.
#[derive(Debug, Clone)]
enum Seen {
    Present(Arc<Value>),
    /// Removed from the API, perhaps by force while its claims are still prepared.
    Gone,
}

/// Starts a worker for each pod of the node until aborted.
pub(super) async fn run(shared: Arc<Shared>, plugins: Arc<Plugins>) {
    let mut workers: BTreeMap<String, watch::Sender<Seen>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let selector = || Selector::field("spec.nodeName", &shared.options.node_name);
    let (present, _) = shared.server.list(&POD, "", &selector());
    for uid in shared.cache.pods() {
        // Went while the kubelet was away.
        if !present.iter().any(|pod| text(pod, "/metadata/uid") == uid) {
            let (sender, seen) = watch::channel(Seen::Gone);
            tasks.spawn(work(shared.clone(), plugins.clone(), uid.clone(), seen));
            workers.insert(uid, sender);
        }
    }
    let mut pods = shared.server.watch(&POD, "", selector(), None);
    loop {
        while tasks.try_join_next().is_some() {}
        workers.retain(|_, sender| !sender.is_closed());
        match pods.next(None).await {
            None => return,
            Some(Err(_)) => {
                // What went meanwhile isn't told any more; what is there comes again.
                pods = shared.server.watch(&POD, "", selector(), None);
                let (present, _) = shared.server.list(&POD, "", &selector());
                let there = |uid: &str| present.iter().any(|p| text(p, "/metadata/uid") == uid);
                for (_, sender) in workers.iter().filter(|(uid, _)| !there(uid)) {
                    sender.send_replace(Seen::Gone);
                }
            }
            Some(Ok(Notice::Object(change, pod))) => {
                let uid = text(&pod, "/metadata/uid").to_owned();
                let seen = if change == Change::Deleted { Seen::Gone } else { Seen::Present(pod) };
                match workers.get(&uid).filter(|sender| !sender.is_closed()) {
                    Some(sender) => {
                        sender.send_replace(seen);
                    }
                    None if matches!(seen, Seen::Gone) => {}
                    None => {
                        let (sender, receiver) = watch::channel(seen);
                        tasks.spawn(work(shared.clone(), plugins.clone(), uid.clone(), receiver));
                        workers.insert(uid, sender);
                    }
                }
            }
            Some(Ok(_)) => {}
        }
    }
}

/// Brings one pod up, keeps its status, and takes it down.
async fn work(
    shared: Arc<Shared>,
    plugins: Arc<Plugins>,
    uid: String,
    mut seen: watch::Receiver<Seen>,
) {
    let mut changes = plugins.changes();
    let timing = shared.options.timing.clone();
    let mut pause = timing.pod_retry_first;
    let mut running: Option<Vec<PodClaim>> = None;
    loop {
        let now = seen.borrow_and_update().clone();
        changes.mark_unchanged();
        let outcome = match now {
            Seen::Gone => match shared.take_down(&uid, &plugins).await {
                Ok(()) => return,
                failed => failed,
            },
            Seen::Present(pod) if is_deleting(&pod) => match shared.remove(&pod, &plugins).await {
                Ok(()) => return,
                failed => failed,
            },
            Seen::Present(pod) if finished(&pod) => shared.take_down(&uid, &plugins).await,
            Seen::Present(pod) => match &running {
                Some(claims) => {
                    shared.report_running(&pod, claims, &plugins);
                    Ok(())
                }
                None => shared.bring_up(&pod, &plugins).await.map(|claims| {
                    running = Some(claims);
                }),
            },
        };
        let retry = outcome.is_err();
        if let Err(why) = outcome {
            tracing::debug!(uid, why, "pod not synchronised");
        } else {
            pause = timing.pod_retry_first;
        }
        wait(&mut seen, &mut changes, retry.then_some(pause)).await;
        if retry {
            pause = (pause * 2).min(timing.pod_retry_most);
        }
        if seen.has_changed().is_err() {
            return;
        }
    }
}

/// Until the pod changes, a device's health changes, or it is time to try again. While a failure waits for its
/// time only the pod's own deletion shortens the pause.
async fn wait(
    seen: &mut watch::Receiver<Seen>,
    changes: &mut watch::Receiver<u64>,
    retry: Option<Duration>,
) {
    let Some(pause) = retry else {
        tokio::select! {
            _ = seen.changed() => {}
            _ = changes.changed() => {}
        }
        return;
    };
    let over = |seen: &Seen| match seen {
        Seen::Gone => true,
        Seen::Present(pod) => is_deleting(pod),
    };
    let already = over(&seen.borrow());
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        _ = seen.wait_for(over), if !already => {}
        // A driver came, which may be what was missing.
        _ = changes.changed() => {}
    }
}

impl Shared {
    async fn bring_up(&self, pod: &Value, plugins: &Plugins) -> Result<Vec<PodClaim>, String> {
        let claims = match self.prepare(pod, plugins).await {
            Ok(claims) => claims,
            Err(why) => {
                let message = format!("Failed to prepare dynamic resources: {why}");
                self.herald.warn(pod, NAME, "FailedPrepareDynamicResources", &message);
                self.write_status(pod, status::waiting(pod, "ContainerCreating", ""))?;
                return Err(why);
            }
        };
        for container in list(pod, "initContainers").iter().chain(list(pod, "containers")) {
            if let Err(why) = self.start(pod, container, &claims) {
                let message =
                    format!("error creating container {}: {why}", text(container, "/name"));
                self.herald.warn(pod, NAME, "Failed", &message);
                self.write_status(pod, status::waiting(pod, "CreateContainerError", &message))?;
                return Err(message);
            }
        }
        self.report_running(pod, &claims, plugins);
        Ok(claims)
    }

    /// Records what the container would get.
    fn start(&self, pod: &Value, container: &Value, claims: &[PodClaim]) -> Result<(), String> {
        let mut record = Container {
            namespace: text(pod, "/metadata/namespace").to_owned(),
            pod: text(pod, "/metadata/name").to_owned(),
            pod_uid: text(pod, "/metadata/uid").to_owned(),
            name: text(container, "/name").to_owned(),
            ..Container::default()
        };
        let env = container["env"].as_array().into_iter().flatten();
        record.env.extend(env.filter_map(|variable| {
            Some(format!("{}={}", variable["name"].as_str()?, variable["value"].as_str()?))
        }));
        let ids = status::cdi_ids(pod, container, claims);
        record.inject(&ids, &self.options.cdi_dirs).map_err(|err| err.to_string())?;
        let record = Arc::new(record);
        let key = (record.pod_uid.clone(), record.name.clone());
        let before = self.containers().insert(key, record.clone());
        if before.as_ref() != Some(&record) {
            self.herald.tell(LabEvent::ContainerStarted(record));
        }
        Ok(())
    }

    fn report_running(&self, pod: &Value, claims: &[PodClaim], plugins: &Plugins) {
        let status = status::running(pod, claims, plugins);
        if let Err(why) = self.write_status(pod, status) {
            tracing::debug!(why, "pod status not written");
        }
    }

    /// Writes what differs; the answer to no difference is no write.
    fn write_status(&self, pod: &Value, status: Value) -> Result<(), String> {
        let at = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let patch =
            serde_json::json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status});
        control::patch_status(&self.server, &POD, at, patch, NAME).map_err(|err| err.to_string())
    }

    /// Stops the containers and gives up the claims.
    async fn take_down(&self, uid: &str, plugins: &Plugins) -> Result<(), String> {
        self.containers().retain(|(pod, _), _| pod != uid);
        self.unprepare(uid, plugins).await
    }

    /// Takes a pod down and then out of the API.
    async fn remove(&self, pod: &Value, plugins: &Plugins) -> Result<(), String> {
        let uid = text(pod, "/metadata/uid");
        if let Err(why) = self.take_down(uid, plugins).await {
            // The real kubelet only logs this; here it is for people to see.
            let message = format!("Failed to unprepare dynamic resources: {why}");
            self.herald.warn(pod, NAME, "FailedUnprepareDynamicResources", &message);
            return Err(why);
        }
        let at = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let options = DeleteOptions { uid: Some(uid.to_owned()), ..DeleteOptions::now() };
        match self.server.delete(&POD, at.0, at.1, &options) {
            Ok(_) => Ok(()),
            Err(err) if err.code == 404 || err.code == 409 => Ok(()),
            Err(err) => Err(err.to_string()),
        }
    }
}

fn list<'v>(pod: &'v Value, field: &str) -> &'v [Value] {
    pod["spec"][field].as_array().map(Vec::as_slice).unwrap_or_default()
}
