//! What the API server says of the node, as far as it may be asked. It gets a few seconds.

use std::time::Duration;

use gpu_dra_model::NodeName;
use gpu_dra_node::neighbours::device_plugin;
use gpu_dra_node::requirements::shortfalls;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::ListParams;

use super::Args;
use super::facts::{Cluster, Found, NodeInfo, SliceInfo};
use crate::cluster;

/// For each question.
const LIMIT: Duration = Duration::from_secs(5);

/// Events that are shown, the newest.
const EVENTS: usize = 40;

/// Asks.
pub(super) async fn ask(args: &Args) -> Found<Cluster> {
    let Some(node) = &args.node_name else {
        return Err("not asked: give --node-name".to_owned());
    };
    let client = cluster::as_kubectl(args.kubeconfig.as_deref(), None);
    let client = client.await.map_err(|error| format!("{error:#}"))?;
    Ok(Cluster {
        server: args.kubeconfig.as_ref().map_or_else(
            || "kubectl's or the pod's own".to_owned(),
            |path| format!("of {}", path.display()),
        ),
        node: in_time(self::node(&client, node)).await,
        slices: in_time(slices(&client, args, node)).await,
        events: in_time(events(&client, args, node)).await,
    })
}

async fn in_time<T>(question: impl Future<Output = kube::Result<T>>) -> Found<T> {
    match tokio::time::timeout(LIMIT, question).await {
        Ok(answer) => answer.map_err(|error| match error {
            kube::Error::Api(status) => status.message,
            error => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                source.unwrap_or_else(|| error.to_string())
            }
        }),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

async fn node(client: &kube::Client, name: &NodeName) -> kube::Result<NodeInfo> {
    let node = Api::<Node>::all(client.clone()).get(name.as_str()).await?;
    let mut troubles: Vec<String> =
        device_plugin(&node, name).iter().map(ToString::to_string).collect();
    let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
    troubles.extend(shortfalls(&info));
    Ok(NodeInfo {
        kubelet: info.kubelet_version,
        runtime: info.container_runtime_version,
        kernel: info.kernel_version,
        os: info.os_image,
        troubles,
    })
}

async fn slices(
    client: &kube::Client,
    args: &Args,
    node: &NodeName,
) -> kube::Result<Vec<SliceInfo>> {
    let fields = format!("spec.driver={},spec.nodeName={node}", args.driver_name);
    let slices = Api::<ResourceSlice>::all(client.clone());
    let mut slices: Vec<_> = slices
        .list(&ListParams::default().fields(&fields))
        .await?
        .items
        .into_iter()
        .map(|slice| {
            let devices = slice.spec.devices.unwrap_or_default();
            let taints = devices.iter().flat_map(|device| {
                let taints = device.taints.iter().flatten();
                taints.map(|t| format!("{} {}:{}", device.name, t.key, t.effect))
            });
            SliceInfo {
                name: slice.metadata.name.unwrap_or_default(),
                generation: slice.spec.pool.generation,
                of: slice.spec.pool.resource_slice_count,
                taints: taints.collect(),
                devices: devices.into_iter().map(|device| device.name).collect(),
            }
        })
        .collect();
    slices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(slices)
}

/// This driver's Events on the Node. Others' may say anything.
async fn events(client: &kube::Client, args: &Args, node: &NodeName) -> kube::Result<Vec<String>> {
    let fields = format!("involvedObject.kind=Node,involvedObject.name={node}");
    let events = Api::<Event>::all(client.clone());
    let events = events.list(&ListParams::default().fields(&fields)).await?;
    let ours = |event: &Event| {
        let component = event.source.as_ref().and_then(|source| source.component.as_deref());
        component == Some(args.driver_name.as_str())
    };
    let mut events: Vec<_> = events.items.into_iter().filter(ours).collect();
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    let skipped = events.len().saturating_sub(EVENTS);
    let line = |event: Event| {
        let when = event.last_timestamp.map(|time| time.0.to_string()).unwrap_or_default();
        let (kind, reason) = (event.type_.unwrap_or_default(), event.reason.unwrap_or_default());
        format!("{when} {kind} {reason}: {}", event.message.unwrap_or_default())
    };
    Ok(events.into_iter().skip(skipped).map(line).collect())
}
