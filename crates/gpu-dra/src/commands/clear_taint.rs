//! `gpu-dra clear-taint`: asks a node's agent to take a device for healthy again, by an
//! annotation of the Node, with the rights of whoever calls.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gpu_dra_model::NodeName;
use gpu_dra_node::clear_request::{ANNOTATION, ClearRequest, Target};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};

use crate::cluster;

/// What is to be cleared.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A device as it is published, such as gpu-3, or a GPU's UUID for all that is on it
    device: String,
    /// The node it is on; needed where several nodes have a device of that name
    #[arg(long)]
    node: Option<NodeName>,
    /// This taint alone, such as gpu.nvidia.com/xid, or xid for short
    #[arg(long)]
    key: Option<String>,
    /// The DRA driver's name
    #[arg(long, env = "GPU_DRA_DRIVER_NAME", default_value = "gpu.nvidia.com")]
    driver_name: String,
    /// The cluster's kubeconfig; as kubectl finds it where none is given
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(clear(args))
}

async fn clear(args: &Args) -> anyhow::Result<()> {
    let text = match &args.key {
        Some(key) if key.contains('/') => format!("{}/{key}", args.device),
        Some(key) => format!("{}/gpu.nvidia.com/{key}", args.device),
        None => args.device.clone(),
    };
    let request: ClearRequest =
        text.parse().with_context(|| format!("can't ask for {:?}", args.device))?;
    let client = cluster::as_kubectl(args.kubeconfig.as_deref(), args.context.as_deref());
    let client = client.await?;
    let found = owners(&client, args, &request.target).await?;
    let node = match found.as_slice() {
        [node] => node,
        [] => bail!("no node publishes {}; see kubectl get resourceslices", request.target),
        nodes => bail!("{} is on {} nodes: say --node", request.target, nodes.len()),
    };
    // The time makes it another request than the same one last week.
    let value = format!("{text}#{}", Timestamp::now());
    let patch = serde_json::json!({"metadata": {"annotations": {ANNOTATION: value}}});
    let nodes = Api::<Node>::all(client);
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("can't annotate node {node}; patching nodes must be allowed"))?;
    anstream::println!(
        "asked {node} to clear {}; what came of it is an Event on the node within a minute",
        request.target
    );
    Ok(())
}

/// The nodes that publish it, of which there should be one.
async fn owners(
    client: &kube::Client,
    args: &Args,
    target: &Target,
) -> anyhow::Result<Vec<String>> {
    let mut fields = format!("spec.driver={}", args.driver_name);
    if let Some(node) = &args.node {
        fields.push_str(&format!(",spec.nodeName={node}"));
    }
    let slices = Api::<ResourceSlice>::all(client.clone());
    let slices = slices.list(&ListParams::default().fields(&fields)).await;
    let mut nodes: Vec<String> = slices
        .context("can't list resourceslices")?
        .into_iter()
        .filter(|slice| slice.spec.devices.iter().flatten().any(|device| is(device, target)))
        .filter_map(|slice| slice.spec.node_name)
        .collect();
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

/// A MIG device says whose part it is.
fn is(device: &Device, target: &Target) -> bool {
    let text = |key: &str| device.attributes.as_ref()?.get(key)?.string.as_deref();
    match target {
        Target::Device(name) => device.name == name.as_str(),
        Target::Gpu(uuid) => {
            ["uuid", "parentUUID"].iter().any(|key| text(key) == Some(uuid.as_str()))
        }
    }
}
