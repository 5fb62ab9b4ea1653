//! The objects of a cluster that have a say about devices, listed page by page and cut down
//! to what is looked at, so that thousands of nodes fit in little memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gpu_dra_allocator::Rules;
use gpu_dra_explain::manifest::Manifests;
use gpu_dra_explain::{Advice, Slices};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// Objects per page; of slices, which can be a hundred times larger, fewer.
const PAGE: u32 = 500;
const FEWER: u32 = 100;

/// What a cluster, or a file in its place, has.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) slices: Slices,
    pub(crate) classes: Vec<DeviceClass>,
    pub(crate) claims: Vec<ResourceClaim>,
    pub(crate) templates: Vec<ResourceClaimTemplate>,
    pub(crate) nodes: Vec<Node>,
    /// Which scheduler decides.
    pub(crate) rules: Rules,
    /// The pod that is asked about.
    pub(crate) pod: Option<Pod>,
    /// Those of the files, and of a cluster those that are asked about.
    namespaces: Vec<Namespace>,
    /// What couldn't be read.
    pub(crate) notes: Vec<Advice>,
}

impl Objects {
    /// Of files alone. Nodes that only slices know are made up.
    pub(crate) fn of(files: Manifests) -> Self {
        let mut objects = Self {
            slices: files.slices.into_iter().collect(),
            classes: files.classes,
            claims: files.claims,
            templates: files.templates,
            nodes: files.nodes,
            namespaces: files.namespaces,
            notes: files.refused.into_iter().map(|refusal| refusal.advice).collect(),
            ..Self::default()
        };
        objects.name_nodes();
        objects
    }

    /// Adds the nodes that slices name and that aren't known.
    pub(crate) fn name_nodes(&mut self) {
        let known: std::collections::BTreeSet<_> =
            self.nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
        let named = self.slices.node_names().filter(|name| !known.contains(*name));
        let mut missing: Vec<String> = named.map(str::to_owned).collect();
        missing.sort();
        missing.dedup();
        self.nodes.extend(missing.into_iter().map(|name| {
            let hostname = ("kubernetes.io/hostname".to_owned(), name.clone());
            let labels = Some([hostname].into_iter().collect());
            let metadata = ObjectMeta { name: Some(name), labels, ..ObjectMeta::default() };
            Node { metadata, ..Node::default() }
        }));
    }

    /// Puts what files have in place of objects of the same name.
    pub(crate) fn lay_over(&mut self, files: &Manifests) {
        put(&mut self.classes, &files.classes, |class| &class.metadata);
        put(&mut self.claims, &files.claims, |claim| &claim.metadata);
        put(&mut self.templates, &files.templates, |template| &template.metadata);
        self.slices.put_all(files.slices.iter().cloned());
        put(&mut self.nodes, &files.nodes, |node| &node.metadata);
        put(&mut self.namespaces, &files.namespaces, |namespace| &namespace.metadata);
    }

    /// Whether namespaces allow adminAccess, of those that are known.
    pub(crate) fn admin_access(&self) -> BTreeMap<String, bool> {
        let label = "resource.kubernetes.io/admin-access";
        let named = self.namespaces.iter().filter_map(|namespace| {
            let labels = namespace.metadata.labels.as_ref();
            let value = labels.and_then(|labels| labels.get(label));
            Some((namespace.metadata.name.clone()?, value.is_some_and(|value| value == "true")))
        });
        named.collect()
    }
}

fn put<T: Clone>(into: &mut Vec<T>, from: &[T], metadata: impl Fn(&T) -> &ObjectMeta) {
    for object in from {
        let (name, namespace) = (&metadata(object).name, &metadata(object).namespace);
        // One without a name is another one.
        let same = |known: &T| {
            let known = metadata(known);
            name.is_some() && known.name == *name && known.namespace == *namespace
        };
        into.retain(|known| !same(known));
        into.push(object.clone());
    }
}

/// The rules of the scheduler beside an API server of this minor version, such as `36+`.
fn rules(minor: &str) -> Rules {
    let digits = minor.split(|letter: char| !letter.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).map_or_else(Rules::default, Rules::of_minor)
}

/// Lists all, and gets the pod. Templates are listed in `namespaces`, of which the first is
/// the pod's; whether these allow adminAccess is asked, and may stay unknown.
pub(crate) async fn objects(
    client: Client,
    namespaces: &[String],
    pod: Option<&str>,
) -> anyhow::Result<Objects> {
    let namespace = namespaces.first().map_or("default", String::as_str);
    let mut objects = Objects {
        slices: list(Api::all(client.clone()), "resourceslices", FEWER, |slice| slice).await?,
        classes: list(Api::all(client.clone()), "deviceclasses", PAGE, |class| class).await?,
        ..Objects::default()
    };
    match client.apiserver_version().await {
        Ok(version) => objects.rules = rules(&version.minor),
        Err(error) => objects.notes.push(Advice {
            about: "the API server's version".to_owned(),
            problem: format!("can't be read ({error}): taken for 1.36 or older"),
            fix: None,
        }),
    }
    match list(Api::all(client.clone()), "resourceclaims", PAGE, slim_claim).await {
        Ok(claims) => objects.claims = claims,
        Err(error) if is_forbidden(&error) => {
            let own = Api::namespaced(client.clone(), namespace);
            objects.claims = list(own, "resourceclaims", PAGE, slim_claim).await?;
            objects.notes.push(Advice {
                about: "resourceclaims".to_owned(),
                problem: format!(
                    "only those of namespace {namespace} may be listed: devices that others hold look free"
                ),
                fix: Some("let this user list resourceclaims in all namespaces".to_owned()),
            });
        }
        Err(error) => return Err(error),
    }
    match list(Api::all(client.clone()), "nodes", PAGE, slim_node).await {
        Ok(nodes) => objects.nodes = nodes,
        Err(error) if is_forbidden(&error) => {
            objects.name_nodes();
            objects.notes.push(Advice {
                about: "nodes".to_owned(),
                problem: "they may not be listed: labels, taints and cordons are unknown, nodes without slices left out"
                    .to_owned(),
                fix: Some("let this user list nodes".to_owned()),
            });
        }
        Err(error) => return Err(error),
    }
    for namespace in namespaces {
        let own = Api::namespaced(client.clone(), namespace);
        let found: Vec<_> = list(own, "resourceclaimtemplates", PAGE, |template| template).await?;
        objects.templates.extend(found);
        match Api::<Namespace>::all(client.clone()).get_opt(namespace).await {
            Ok(found) => objects.namespaces.extend(found),
            // Only claims with adminAccess depend on it; of them it is said.
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => {
                return Err(error).with_context(|| format!("can't get namespace {namespace}"));
            }
        }
    }
    if let Some(name) = pod {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let found = pods.get_opt(name).await;
        objects.pod = found.with_context(|| format!("can't get pod {namespace}/{name}"))?;
    }
    Ok(objects)
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 403)
}

/// All objects of a kind, page by page, each cut down at once.
async fn list<T, L>(
    api: Api<T>,
    what: &str,
    per_page: u32,
    cut: impl Fn(T) -> T,
) -> anyhow::Result<L>
where
    T: Clone + DeserializeOwned + Debug,
    L: Default + Extend<T>,
{
    let mut progress = Progress::new(what, None);
    let mut objects = L::default();
    let mut count = 0;
    let mut params = ListParams::default().limit(per_page);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 410 && count > 0 => {
                // The list took longer than the server keeps its state: once more, in one go.
                objects = L::default();
                count = 0;
                params = ListParams::default();
                continue;
            }
            Err(error) => {
                progress.end();
                let old = matches!(&error, kube::Error::Api(status) if status.code == 404);
                let hint =
                    if old { ": resource.k8s.io/v1 is there from Kubernetes 1.34 on" } else { "" };
                return Err(error).with_context(|| format!("can't list {what}{hint}"));
            }
        };
        count += page.items.len();
        objects.extend(page.items.into_iter().map(&cut));
        progress.show(count);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(per_page).continue_token(&token),
            None => break,
        }
    }
    progress.end();
    Ok(objects)
}

/// A node without images, addresses and the like.
fn slim_node(node: Node) -> Node {
    let metadata = ObjectMeta {
        name: node.metadata.name,
        labels: node.metadata.labels,
        ..ObjectMeta::default()
    };
    let spec = node.spec.map(|spec| NodeSpec {
        taints: spec.taints,
        unschedulable: spec.unschedulable,
        ..NodeSpec::default()
    });
    let status = node
        .status
        .map(|status| NodeStatus { allocatable: status.allocatable, ..NodeStatus::default() });
    Node { metadata, spec, status }
}

/// A claim without whose its fields are, and without what drivers are told of it.
fn slim_claim(mut claim: ResourceClaim) -> ResourceClaim {
    claim.metadata.managed_fields = None;
    claim.metadata.annotations = None;
    if let Some(status) = &mut claim.status {
        status.devices = None;
        let allocation = status.allocation.as_mut();
        if let Some(devices) = allocation.and_then(|allocation| allocation.devices.as_mut()) {
            devices.config = None;
        }
    }
    claim
}

/// One line on a terminal's stderr that counts up; nothing where no one watches.
pub(crate) struct Progress {
    what: String,
    all: Option<usize>,
    watched: bool,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(what: &str, all: Option<usize>) -> Self {
        let watched = std::io::stderr().is_terminal();
        Self { what: what.to_owned(), all, watched, shown: None }
    }

    pub(crate) fn show(&mut self, done: usize) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() > Duration::from_millis(100));
        if !self.watched || !due {
            return;
        }
        self.shown = Some(Instant::now());
        let of = self.all.map_or_else(String::new, |all| format!(" of {all}"));
        self.write(&format!("\r{done}{of} {}", self.what));
    }

    /// Takes the line away.
    pub(crate) fn end(&mut self) {
        if self.watched && self.shown.take().is_some() {
            self.write(&format!("\r{}\r", " ".repeat(self.what.len() + 24)));
        }
    }

    /// That nobody can be told how far it is is no reason to stop.
    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr();
        drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifests(documents: &[serde_json::Value]) -> Manifests {
        let mut manifests = Manifests::default();
        documents.iter().for_each(|document| manifests.add(document.clone(), "default"));
        manifests
    }

    fn slice(name: &str, node: &str) -> serde_json::Value {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {
                "driver": "gpu.nvidia.com", "nodeName": node, "devices": [{"name": "gpu-0"}],
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            },
        })
    }

    #[test]
    fn nodes_that_only_slices_know_are_made_up() {
        let known = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}});
        let files = manifests(&[slice("1", "a"), slice("2", "b"), slice("3", "a"), known]);
        let objects = Objects::of(files);
        let names: Vec<_> = objects.nodes.iter().filter_map(|n| n.metadata.name.clone()).collect();
        assert_eq!(names, ["b", "a"]);
    }

    #[test]
    fn files_lie_over_the_cluster() {
        let mut objects = Objects::of(manifests(&[slice("1", "a"), slice("2", "b")]));
        objects.lay_over(&manifests(&[slice("2", "c"), slice("4", "d")]));
        let nodes: Vec<_> =
            objects.slices.iter().filter_map(|slice| slice.spec.node_name).collect();
        assert_eq!(nodes, ["a", "c", "d"]);
    }

    #[test]
    fn admin_access_is_known_of_namespaces_that_are() {
        let mut objects = Objects::default();
        assert_eq!(objects.admin_access(), BTreeMap::new());
        let namespace = |name: &str, labels: serde_json::Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        let label = json!({"resource.kubernetes.io/admin-access": "true"});
        objects.lay_over(&manifests(&[namespace("a", label), namespace("b", json!({}))]));
        assert_eq!(
            objects.admin_access(),
            BTreeMap::from([("a".to_owned(), true), ("b".to_owned(), false)])
        );
    }

    #[test]
    fn nodes_and_claims_are_cut_down() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"zone": "b"}, "annotations": {"long": "text"}},
            "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
            "status": {"allocatable": {"nvidia.com/gpu": "1"}, "images": [{"names": ["x"]}]},
        }))
        .unwrap();
        let slim = serde_json::to_value(slim_node(node)).unwrap();
        assert_eq!(
            slim,
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "a", "labels": {"zone": "b"}},
                "spec": {"unschedulable": true},
                "status": {"allocatable": {"nvidia.com/gpu": "1"}},
            })
        );
    }

    #[test]
    fn a_server_says_which_scheduler_decides() {
        for (minor, expected) in [
            ("35", Rules::UpTo136),
            ("36+", Rules::UpTo136),
            ("37", Rules::From137),
            ("37+", Rules::From137),
            ("40-gke.1", Rules::From137),
            ("", Rules::UpTo136),
        ] {
            assert_eq!(rules(minor), expected, "{minor}");
        }
    }

    /// More objects than a page holds, and a pod with its claim, over HTTP.
    #[tokio::test]
    async fn lists_go_on_after_a_page() {
        let api = gpu_dra_lab::ApiServer::new().unwrap();
        let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let listener = gpu_dra_lab::Listener::start(api, address).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, listener.kubeconfig_yaml()).unwrap();
        let client = crate::cluster::as_kubectl(Some(&kubeconfig), None).await.unwrap();
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
        let count = usize::try_from(PAGE).unwrap() + 1;
        for number in 0..count {
            let claim = serde_json::from_value(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": format!("claim-{number}")},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                    "deviceClassName": "gpu.nvidia.com",
                }}]}},
            }));
            claims.create(&kube::api::PostParams::default(), &claim.unwrap()).await.unwrap();
        }
        let monitors: Namespace = serde_json::from_value(json!({"metadata": {
            "name": "monitors", "labels": {"resource.kubernetes.io/admin-access": "true"},
        }}))
        .unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&kube::api::PostParams::default(), &monitors).await.unwrap();
        let asked = ["default", "monitors", "nowhere"].map(str::to_owned);
        let found = objects(client, &asked, Some("nobody")).await.unwrap();
        let names: std::collections::BTreeSet<_> =
            found.claims.iter().map(|claim| claim.metadata.name.clone()).collect();
        assert_eq!((found.claims.len(), names.len()), (count, count));
        assert!(found.pod.is_none() && found.notes.is_empty());
        assert_eq!(found.admin_access().get("monitors"), Some(&true));
        assert_eq!(found.admin_access().get("nowhere"), None);
    }
}
