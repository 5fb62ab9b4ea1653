//! A cluster made of YAML: nodes, slices, classes, claims, pods, and a scheduler that puts the
//! pods of a file on nodes in their order with nothing but the allocator.

use gpu_dra_allocator::{AllocateError, Allocated, Allocator, Outcome, Refusal, Rules};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice,
};
use serde_json::{Value, json};

/// Objects of a cluster.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) nodes: Vec<Node>,
    pub(crate) slices: Vec<ResourceSlice>,
    pub(crate) classes: Vec<DeviceClass>,
    pub(crate) claims: Vec<ResourceClaim>,
    templates: Vec<Value>,
    pub(crate) pods: Vec<Value>,
}

/// What became of a pod.
#[derive(Debug)]
pub(crate) enum Pod {
    /// It runs: the node, and per claim what was allocated.
    Running(String, Vec<AllocationResult>),
    /// No node has the devices; per node why.
    Pending(Vec<(String, Refusal)>),
}

impl Pod {
    /// All devices of the pod as `request=device`, in order, and its node.
    pub(crate) fn devices(&self) -> (String, Vec<String>) {
        match self {
            Self::Running(node, allocations) => {
                let shown = allocations
                    .iter()
                    .flat_map(results)
                    .map(|r| format!("{}={}", r.request, r.device));
                (node.clone(), shown.collect())
            }
            Self::Pending(refusals) => panic!("pending: {refusals:?}"),
        }
    }

    /// Pending without an error: all was tried on each of the nodes.
    pub(crate) fn assert_nothing_fits(&self, nodes: usize) {
        match self {
            Self::Pending(refusals) => {
                assert_eq!(refusals.len(), nodes, "{refusals:?}");
                assert!(
                    refusals.iter().all(|(_, refusal)| refusal.error.is_none()),
                    "{refusals:?}"
                );
            }
            Self::Running(node, _) => panic!("running on {node}"),
        }
    }

    /// Pending on all nodes by one error, as the scheduler has it for a failing selector.
    pub(crate) fn error(&self) -> &AllocateError {
        match self {
            Self::Pending(refusals) => match &refusals[..] {
                [(_, Refusal { error: Some(error), .. })] => error,
                other => panic!("no error: {other:?}"),
            },
            Self::Running(node, _) => panic!("running on {node}"),
        }
    }
}

pub(crate) fn results(allocation: &AllocationResult) -> Vec<DeviceRequestAllocationResult> {
    allocation.devices.as_ref().and_then(|devices| devices.results.clone()).unwrap_or_default()
}

impl World {
    /// The inventory that the cases are judged against.
    pub(crate) fn inventory() -> Self {
        Self::empty().with(include_str!("../data/inventory.yaml"))
    }

    pub(crate) fn empty() -> Self {
        Self {
            rules: Rules::default(),
            nodes: Vec::new(),
            slices: Vec::new(),
            classes: Vec::new(),
            claims: Vec::new(),
            templates: Vec::new(),
            pods: Vec::new(),
        }
    }

    /// Adds the objects of some YAML; slices replace those of the same name, as `apply` does.
    pub(crate) fn with(mut self, yaml: &str) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let document = upgraded(document);
            match document["kind"].as_str().unwrap() {
                "Node" => self.nodes.push(object(document)),
                "DeviceClass" => self.classes.push(object(document)),
                "ResourceClaim" => self.claims.push(object(document)),
                "ResourceClaimTemplate" => self.templates.push(document),
                "Pod" => self.pods.push(document),
                "Namespace" => {}
                "ResourceSlice" => {
                    let slice: ResourceSlice = object(document);
                    self.slices.retain(|known| known.metadata.name != slice.metadata.name);
                    self.slices.push(slice);
                }
                other => panic!("{other} is not known here"),
            }
        }
        self
    }

    /// Schedules all pods in their order.
    pub(crate) fn schedule(&mut self) -> Vec<Pod> {
        let pods = self.pods.clone();
        pods.iter().map(|pod| self.schedule_pod(pod)).collect()
    }

    fn schedule_pod(&mut self, pod: &Value) -> Pod {
        let claims = self.claims_of(pod);
        let missing = |claim: &&ResourceClaim| allocation_of(claim).is_none();
        let open: Vec<&ResourceClaim> = claims.iter().filter(missing).collect();
        let mut refusals = Vec::new();
        for node in self.nodes_for(pod, &claims) {
            let name = node.metadata.name.clone().unwrap();
            let mut allocator =
                Allocator::new(&self.slices, &self.classes, Allocated::from_claims(&self.claims))
                    .with_rules(self.rules);
            let mut shares = 0;
            let mut share_id = || {
                shares += 1;
                format!("00000000-0000-0000-0000-{shares:012}")
            };
            match allocator.allocate(&node, &open, &mut share_id) {
                Outcome::Allocated(allocations) => {
                    let mut given = allocations.iter();
                    let mut all = Vec::new();
                    for claim in &claims {
                        let allocation =
                            allocation_of(claim).or_else(|| given.next().cloned()).unwrap();
                        self.store(claim, &allocation);
                        all.push(allocation);
                    }
                    return Pod::Running(name, all);
                }
                // The scheduler gives up on the pod, not only on the node.
                Outcome::Refused(refusal) if refusal.error.is_some() => {
                    return Pod::Pending(vec![(name, refusal)]);
                }
                Outcome::Refused(refusal) => refusals.push((name, refusal)),
            }
        }
        Pod::Pending(refusals)
    }

    /// The nodes that the pod's node selector and its allocated claims leave.
    fn nodes_for(&self, pod: &Value, claims: &[ResourceClaim]) -> Vec<Node> {
        let wanted = pod["spec"]["nodeSelector"].as_object();
        let labelled = |node: &&Node| {
            wanted.into_iter().flatten().all(|(key, value)| {
                let labels = node.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(key)).map(String::as_str) == value.as_str()
            })
        };
        let bound: Vec<String> = claims
            .iter()
            .filter_map(allocation_of)
            .filter_map(|allocation| {
                let term = allocation.node_selector?.node_selector_terms.into_iter().next()?;
                term.match_fields?.into_iter().next()?.values?.into_iter().next()
            })
            .collect();
        let reachable =
            |node: &&Node| bound.iter().all(|name| node.metadata.name.as_ref() == Some(name));
        self.nodes.iter().filter(labelled).filter(reachable).cloned().collect()
    }

    /// The pod's claims: named ones, those of templates, and the one behind extended
    /// resources.
    fn claims_of(&self, pod: &Value) -> Vec<ResourceClaim> {
        let pod_name = pod["metadata"]["name"].as_str().unwrap();
        let mut claims = Vec::new();
        for entry in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
            if let Some(name) = entry["resourceClaimName"].as_str() {
                let known =
                    self.claims.iter().find(|claim| claim.metadata.name.as_deref() == Some(name));
                claims.push(known.unwrap_or_else(|| panic!("no claim {name}")).clone());
                continue;
            }
            let template = entry["resourceClaimTemplateName"].as_str().unwrap();
            let template =
                self.templates.iter().find(|t| t["metadata"]["name"] == template).unwrap();
            let name = format!("{pod_name}-{}", entry["name"].as_str().unwrap());
            claims.push(object(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": template["spec"]["spec"],
            })));
        }
        claims.extend(self.extended_resources(pod, pod_name));
        claims
    }

    fn extended_resources(&self, pod: &Value, pod_name: &str) -> Option<ResourceClaim> {
        let mut requests = Vec::new();
        for (i, container) in pod["spec"]["containers"].as_array()?.iter().enumerate() {
            let limits = container["resources"]["limits"].as_object();
            for (j, (resource, count)) in limits.into_iter().flatten().enumerate() {
                let class = self.classes.iter().find(|class| {
                    class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_ref())
                        == Some(resource)
                })?;
                requests.push(json!({
                    "name": format!("container-{i}-request-{j}"),
                    "exactly": {"deviceClassName": class.metadata.name, "allocationMode": "ExactCount", "count": count},
                }));
            }
        }
        (!requests.is_empty()).then(|| object(json!({
            "metadata": {"name": format!("{pod_name}-extended-resources-x"), "namespace": "default"},
            "spec": {"devices": {"requests": requests}},
        })))
    }

    fn store(&mut self, claim: &ResourceClaim, allocation: &AllocationResult) {
        let mut claim = claim.clone();
        claim.status.get_or_insert_default().allocation = Some(allocation.clone());
        self.claims.retain(|known| known.metadata.name != claim.metadata.name);
        self.claims.push(claim);
    }
}

fn allocation_of(claim: &ResourceClaim) -> Option<AllocationResult> {
    claim.status.as_ref().and_then(|status| status.allocation.clone())
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    let shown = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error} in {shown}"))
}

/// What the API server makes of v1beta1 claims: the fields of a request move under `exactly`.
fn upgraded(mut document: Value) -> Value {
    if document["apiVersion"] != "resource.k8s.io/v1beta1" {
        return document;
    }
    for request in document["spec"]["spec"]["devices"]["requests"].as_array_mut().unwrap() {
        let mut fields = request.as_object().unwrap().clone();
        let name = fields.remove("name");
        *request = json!({"name": name, "exactly": fields});
    }
    document
}
