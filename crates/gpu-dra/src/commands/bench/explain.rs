//! `gpu-dra bench explain`: a made-up cluster of many nodes, and how long it takes to say why
//! a pod doesn't fit, in how much memory.

use std::time::Instant;

use anyhow::Context as _;
use gpu_dra_explain::{Cluster, Explainer, Question, Slices};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use crate::commands::explain_fleet;

/// The cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long, default_value = "5000")]
    nodes: usize,
    /// What each is
    #[arg(long, default_value = "8xh100")]
    node: String,
    /// MIG partitions too: some 26 devices more for each GPU that can have them
    #[arg(long)]
    partitions: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut pattern = explain_fleet::slices_of(&args.node, "node-0")?;
    if !args.partitions {
        whole_gpus(&mut pattern);
    }
    let slices: Slices = (0..args.nodes)
        .flat_map(|number| pattern.iter().map(move |s| of_node(s, number)))
        .collect();
    let of_node = pattern.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let devices = of_node.count() * args.nodes;
    let nodes = (0..args.nodes).map(node).collect::<Result<Vec<Node>, _>>()?;
    let held = holders(&pattern, args.nodes)?;
    let objects_kib = resident("VmRSS:")?;
    let mut rows = Vec::new();
    for (name, claims, selector, count) in [
        ("memory too large by a little", &[][..], TOO_LARGE, 1),
        ("no such product", &[], WRONG_NAME, 1),
        ("more than a node has", &[], "true", 9),
        ("all held by others", &held, "true", 1),
        ("an attribute that no device has", &[], NO_ATTRIBUTE, 1),
        ("fits everywhere", &[], "true", 1),
    ] {
        let classes = classes()?;
        let claim = claim(selector, count)?;
        let started = Instant::now();
        let cluster = Cluster {
            slices: &slices,
            classes: &classes,
            claims,
            nodes: &nodes,
            admin_access: None,
        };
        let report = Explainer::new(cluster).explain(&Question::of_claim(&claim), &mut |_| {});
        let seconds = started.elapsed().as_secs_f64();
        rows.push((name, seconds, report.nodes.len(), report.verdict));
    }
    let peak_kib = resident("VmHWM:")?;
    if args.json {
        let rows = rows.iter().map(|(name, seconds, groups, verdict)| {
            json!({"question": name, "seconds": seconds, "groups": groups, "verdict": verdict})
        });
        let answer = json!({
            "nodes": args.nodes, "devices": devices, "questions": rows.collect::<Vec<_>>(),
            "objectsKib": objects_kib, "peakKib": peak_kib,
        });
        anstream::println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    anstream::println!("{} nodes {}, {devices} devices", args.nodes, args.node);
    for (name, seconds, groups, verdict) in rows {
        anstream::println!("{name:<34} {seconds:>7.3} s   {groups} groups of nodes   {verdict:?}");
    }
    anstream::println!(
        "memory: {} MiB for the objects, {} MiB at most",
        objects_kib / 1024,
        peak_kib / 1024
    );
    Ok(())
}

/// What no two nodes have in common.
const OWN: [&str; 3] = ["uuid", "parentUUID", "cliqueID"];

const TOO_LARGE: &str = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0";
const WRONG_NAME: &str = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
const NO_ATTRIBUTE: &str = "device.attributes['gpu.nvidia.com'].Uuid == 'GPU-1'";

/// One slice with the whole GPUs, which then share nothing with others.
fn whole_gpus(pattern: &mut Vec<ResourceSlice>) {
    pattern.retain(|slice| slice.spec.devices.is_some());
    pattern.truncate(1);
    for slice in pattern {
        slice.spec.pool.resource_slice_count = 1;
        let devices = slice.spec.devices.get_or_insert_default();
        devices.retain(is_whole);
        devices.iter_mut().for_each(|device| device.consumes_counters = None);
    }
}

fn is_whole(device: &Device) -> bool {
    let kind = device.attributes.as_ref().and_then(|all| all.get("type"));
    kind.and_then(|kind| kind.string.as_deref()) == Some("gpu")
}

/// A slice of the pattern for a node, with names and UUIDs of its own.
fn of_node(pattern: &ResourceSlice, number: usize) -> ResourceSlice {
    let mut slice = pattern.clone();
    let node = name(number);
    let part = slice.metadata.name.as_deref().and_then(|name| name.rsplit('-').next());
    slice.metadata.name = Some(format!("{node}-{}", part.unwrap_or_default()));
    slice.spec.node_name = Some(node.clone());
    slice.spec.pool.name = node;
    for device in slice.spec.devices.iter_mut().flatten() {
        for attribute in OWN {
            let value = device.attributes.as_mut().and_then(|all| all.get_mut(attribute));
            if let Some(text) = value.and_then(|value| value.string.as_mut()) {
                text.push_str(&format!("-{number}"));
            }
        }
    }
    slice
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

fn node(number: usize) -> serde_json::Result<Node> {
    let name = name(number);
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }))
}

fn classes() -> serde_json::Result<Vec<DeviceClass>> {
    let expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'";
    serde_json::from_value(json!([{
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }]))
}

fn claim(selector: &str, count: usize) -> serde_json::Result<ResourceClaim> {
    claim_with(
        "pending",
        json!({"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu.nvidia.com", "count": count,
            "selectors": [{"cel": {"expression": selector}}],
        }}]}}}),
    )
}

/// A claim for each whole GPU, which leaves nothing for partitions either.
fn holders(pattern: &[ResourceSlice], nodes: usize) -> serde_json::Result<Vec<ResourceClaim>> {
    let mut claims = Vec::new();
    for number in 0..nodes {
        for slice in pattern {
            for device in slice.spec.devices.iter().flatten().filter(|device| is_whole(device)) {
                let result = json!({
                    "request": "gpu", "driver": slice.spec.driver, "pool": name(number),
                    "device": device.name,
                });
                let status = json!({"allocation": {"devices": {"results": [result]}}});
                let name = format!("holder-{}", claims.len());
                claims.push(claim_with(&name, json!({"spec": {}, "status": status}))?);
            }
        }
    }
    Ok(claims)
}

fn claim_with(name: &str, mut parts: Value) -> serde_json::Result<ResourceClaim> {
    parts["apiVersion"] = "resource.k8s.io/v1".into();
    parts["kind"] = "ResourceClaim".into();
    parts["metadata"] = json!({"name": name, "namespace": "default"});
    serde_json::from_value(parts)
}

/// A line of this process's memory, in KiB.
pub(super) fn resident(line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let value = status.lines().find_map(|text| text.strip_prefix(line));
    let number = value.and_then(|value| value.split_whitespace().next());
    number.with_context(|| format!("no {line}"))?.parse().context("not a number")
}
