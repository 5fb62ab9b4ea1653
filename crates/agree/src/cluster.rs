//! The real cluster: objects made many at a time, pods put to its scheduler, and the verdicts
//! read from what it says of them. It knows nothing of what the verdicts should be.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Verdict, object};

/// The scheduler of e2e/lib/control-plane.sh that looks at devices first.
const SCHEDULER: &str = "devices-first";
/// Carried by all that is made here, so that it can be found and removed again.
const LABEL: &str = "agree.example/made";
/// How the scheduler says that a node hasn't the devices.
const CANNOT: [&str; 2] = ["cannot allocate all claims", "invalid resource pools were encountered"];
/// Requests under way at once.
const AT_ONCE: usize = 32;
/// How long the scheduler may take for all pods of one batch.
const PATIENCE: Duration = Duration::from_secs(120);

/// A namespace of a cluster.
pub struct Cluster {
    client: Client,
    namespace: String,
    /// Kubernetes' minor version.
    pub minor: u32,
    batches: AtomicUsize,
}

/// A pod to be put to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The pod's name.
    pub pod: String,
    /// The one node that it may run on.
    pub node: String,
    /// The claims that it uses.
    pub claims: Vec<String>,
}

/// What the scheduler says of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Of the devices.
    pub verdict: Verdict,
    /// In its words.
    pub message: String,
}

impl Cluster {
    /// The cluster that kubectl would use.
    ///
    /// # Errors
    /// There is none.
    pub async fn connect(namespace: &str) -> Result<Self> {
        // An error says that a provider is chosen already, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::try_default().await.context("no cluster: set KUBECONFIG")?;
        let version = client.apiserver_version().await?;
        let minor = version.minor.trim_end_matches('+');
        let minor = minor.parse().with_context(|| format!("the server's minor version {minor}"))?;
        let namespace = namespace.to_owned();
        Ok(Self { client, namespace, minor, batches: AtomicUsize::new(0) })
    }

    /// Objects of no namespace.
    pub fn everywhere<K: Resource<Scope = k8s_openapi::ClusterResourceScope>>(&self) -> Api<K>
    where
        K::DynamicType: Default,
    {
        Api::all(self.client.clone())
    }

    /// The claims of the namespace.
    pub fn claims(&self) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The claims of all namespaces.
    ///
    /// # Errors
    /// The API server doesn't give them.
    pub async fn all_claims(&self) -> Result<Vec<ResourceClaim>> {
        list(&Api::all(self.client.clone())).await
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Writes the allocations in the status of claims that exist, as a scheduler does.
    ///
    /// # Errors
    /// The API server refuses one.
    pub async fn allocate(&self, claims: &[ResourceClaim]) -> Result<()> {
        let api = self.claims();
        let write = |claim: &ResourceClaim| {
            let (api, name) = (api.clone(), claim.metadata.name.clone().unwrap_or_default());
            let status = Patch::Merge(json!({ "status": claim.status }));
            async move { api.patch_status(&name, &PatchParams::default(), &status).await.map(drop) }
        };
        stream::iter(claims.iter().map(write))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
            .context("a claim's allocation")
    }

    /// Waits until the scheduler has seen all objects that were made before: it can allocate
    /// the last one of each kind.
    ///
    /// # Errors
    /// It doesn't come to see them, or the objects are refused.
    pub async fn settle(&self) -> Result<()> {
        let batch = self.batches.fetch_add(1, Ordering::Relaxed);
        let name = format!("agree-last-{batch}");
        let driver = format!("last-{batch}.agree.example");
        create(&self.everywhere(), vec![node(&name, json!({}))?]).await?;
        create(
            &self.everywhere::<ResourceSlice>(),
            vec![object(json!({
                "metadata": {"name": name},
                "spec": {
                    "driver": driver, "nodeName": name, "devices": [{"name": "last"}],
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                },
            }))?],
        )
        .await?;
        create(&self.everywhere::<DeviceClass>(), vec![object(json!({
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]},
        }))?])
        .await?;
        create(&self.claims(), vec![claim(&name, &name)?]).await?;
        let ask = Ask { pod: name.clone(), node: name.clone(), claims: vec![name.clone()] };
        create(&self.pods(), vec![ask.pod()?]).await?;
        self.wait(1, |_, answer| answer.verdict == Verdict::Can, &format!("metadata.name={name}"))
            .await
            .context("the scheduler didn't see the last objects")?;
        Ok(())
    }

    /// Puts pods to the scheduler, each new to it: its answers by the pods' names.
    ///
    /// # Errors
    /// It says something that is no verdict, or nothing in two minutes.
    pub async fn ask(&self, asks: &[Ask]) -> Result<BTreeMap<String, Answer>> {
        let names: std::collections::BTreeSet<&str> =
            asks.iter().map(|ask| ask.pod.as_str()).collect();
        ensure!(names.len() == asks.len(), "two pods of one name");
        let pods = asks.iter().map(Ask::pod).collect::<Result<Vec<_>>>()?;
        let api = self.pods();
        let made = create(&api, pods);
        let answered = self.wait(asks.len(), |name, _| names.contains(name), "");
        let (_, answers) = tokio::try_join!(made, answered)?;
        Ok(answers)
    }

    /// The first answers to so many pods that are wanted.
    async fn wait(
        &self,
        count: usize,
        wanted: impl Fn(&str, &Answer) -> bool,
        fields: &str,
    ) -> Result<BTreeMap<String, Answer>> {
        let config = watcher::Config::default().labels(LABEL).fields(fields);
        let mut pods = pin!(watcher(self.pods(), config).applied_objects());
        let mut answers = BTreeMap::new();
        let collect = async {
            while answers.len() < count {
                let pod = pods.try_next().await?.context("the watch ended")?;
                let name = pod.metadata.name.clone().unwrap_or_default();
                if let Some(answer) = answer(&pod)?
                    && wanted(&name, &answer)
                {
                    answers.entry(name).or_insert(answer);
                }
            }
            anyhow::Ok(())
        };
        let done = tokio::time::timeout(PATIENCE, collect).await;
        match done {
            Ok(done) => done?,
            Err(_) => bail!("only {} of {count} pods were judged in time", answers.len()),
        }
        Ok(answers)
    }

    /// Removes all that was made here.
    ///
    /// # Errors
    /// The API server doesn't.
    pub async fn clear(&self) -> Result<()> {
        clear(&self.pods()).await?;
        clear(&self.claims()).await?;
        clear(&self.everywhere::<ResourceSlice>()).await?;
        clear(&self.everywhere::<DeviceClass>()).await?;
        clear(&self.everywhere::<Node>()).await
    }
}

impl Ask {
    fn pod(&self) -> Result<Pod> {
        let claims =
            self.claims.iter().map(|name| json!({"name": name, "resourceClaimName": name}));
        let here = json!({"key": "metadata.name", "operator": "In", "values": [self.node]});
        object(json!({
            "metadata": {"name": self.pod},
            "spec": {
                "schedulerName": SCHEDULER,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [here]}],
                }}},
                "resourceClaims": claims.collect::<Vec<_>>(),
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}],
            },
        }))
    }
}

/// A node without a kubelet, and with too little CPU for any pod that is asked about.
///
/// # Errors
/// Labels that are no strings.
pub fn node(name: &str, labels: Value) -> Result<Node> {
    object(json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "1", "pods": "1000"}, "capacity": {"cpu": "1", "pods": "1000"}},
    }))
}

/// A claim for one device of a class.
///
/// # Errors
/// None with proper names.
pub fn claim(name: &str, class: &str) -> Result<ResourceClaim> {
    let request = json!({"name": "r", "exactly": {"deviceClassName": class}});
    object(json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}))
}

/// What the scheduler says of a pod, if it has said something.
fn answer(pod: &Pod) -> Result<Option<Answer>> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let Some(said) = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")
    else {
        return Ok(None);
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    ensure!(said.status == "False", "pod {name} was bound, though no node has the CPU for it");
    let message = said.message.clone().unwrap_or_default();
    let verdict = match said.reason.as_deref() {
        Some("SchedulerError") => Verdict::Error,
        Some("Unschedulable") if message.contains("Insufficient cpu") => Verdict::Can,
        Some("Unschedulable") if CANNOT.iter().any(|words| message.contains(words)) => {
            Verdict::Cannot
        }
        reason => bail!("pod {name}: {reason:?} is no verdict: {message}"),
    };
    Ok(Some(Answer { verdict, message }))
}

/// Makes objects: what the API server says to each, in their order.
pub async fn try_create<K>(api: &Api<K>, objects: Vec<K>) -> Vec<kube::Result<K>>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let create = |mut object: K| {
        let labels = object.meta_mut().labels.get_or_insert_default();
        labels.insert(LABEL.to_owned(), String::new());
        async move { create_one(api, &object).await }
    };
    stream::iter(objects.into_iter().map(create)).buffered(AT_ONCE).collect().await
}

/// A server that is too busy says so with a status from 500 on; it may have made the object.
async fn create_one<K>(api: &Api<K>, object: &K) -> kube::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut tries = 0;
    loop {
        match api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code >= 500 && tries < 5 => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(kube::Error::Api(status)) if status.code == 409 && tries > 0 => {
                return api.get(object.meta().name.as_deref().unwrap_or_default()).await;
            }
            made => return made,
        }
        tries += 1;
    }
}

/// Makes objects.
///
/// # Errors
/// The API server refuses one.
pub async fn create<K>(api: &Api<K>, objects: Vec<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let names: Vec<Option<String>> =
        objects.iter().map(|object| object.meta().name.clone()).collect();
    for (made, name) in try_create(api, objects).await.into_iter().zip(names) {
        made.with_context(|| format!("{} {}", K::kind(&()), name.unwrap_or_default()))?;
    }
    Ok(())
}

/// All objects, whoever made them.
///
/// # Errors
/// The API server doesn't give them.
pub async fn list<K>(api: &Api<K>) -> Result<Vec<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    Ok(api.list(&ListParams::default()).await?.items)
}

async fn clear<K>(api: &Api<K>) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let ours = ListParams::default().labels(LABEL);
    let now = DeleteParams::default().grace_period(0);
    // The server stops at what it can do in a minute.
    while !api.list_metadata(&ours).await?.items.is_empty() {
        api.delete_collection(&now, &ours).await?;
    }
    Ok(())
}
