//! What is wrong with a node, from what is known of it: a sentence each, with what to do. What
//! couldn't be found out is no finding.

use std::collections::BTreeSet;

use gpu_dra_claims::{KnownStep, Phase, Record};
use gpu_dra_node::requirements::cdi;

use super::facts::{Facts, SliceInfo};

/// One thing that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is as it should be.
    Fine(String),
    /// It isn't.
    Problem {
        /// What is wrong.
        what: String,
        /// What to do about it.
        remedy: String,
    },
}

use Finding::{Fine, Problem};

fn problem(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Problem { what: what.into(), remedy: remedy.into() }
}

/// Judges all of it.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    driver(facts, &mut found);
    folders(facts, &mut found);
    agent(facts, &mut found);
    incumbent(facts, &mut found);
    claims(facts, &mut found);
    kubelet(facts, &mut found);
    cluster(facts, &mut found);
    found
}

fn driver(facts: &Facts, found: &mut Vec<Finding>) {
    match &facts.gpus {
        Err(why) => found.push(problem(
            format!("NVML doesn't answer: {why}"),
            format!(
                "install the driver, or say where it is (GPU_DRA_DRIVER_ROOT is {})",
                facts.driver_root.display()
            ),
        )),
        Ok(inventory) => {
            let (gpus, version) = (inventory.gpus.len(), &inventory.driver.driver);
            found.push(Fine(format!("driver {version}: {gpus} GPUs answer")));
            for broken in &inventory.broken {
                found.push(problem(
                    format!("the GPU at index {} doesn't answer: {}", broken.index, broken.reason),
                    "see dmesg for Xids; reset or replace it",
                ));
            }
            if let Err(why) = &facts.driver_files {
                found.push(problem(
                    format!("the driver's files are not complete: {why}"),
                    "containers would fail: reinstall the driver, or correct GPU_DRA_DRIVER_ROOT",
                ));
            }
        }
    }
}

fn folders(facts: &Facts, found: &mut Vec<Finding>) {
    let path = facts.cdi.path.display();
    match &facts.cdi.writable {
        Ok(()) => found.push(Fine(format!("{path} can be written to"))),
        Err(why) => found.push(problem(
            format!("{path}, the folder of CDI specs, can't be written to: {why}"),
            "mount it writable under the same path, and give the runtime's folder as GPU_DRA_CDI_ROOT",
        )),
    }
    let node = facts.cluster.as_ref().ok().and_then(|cluster| cluster.node.as_ref().ok());
    let runtime = node.map_or("", |node| node.runtime.as_str());
    if let Some(why) = cdi(runtime, facts.runtime_config.as_ref(), &facts.cdi.path) {
        found.push(problem(why, "see docs/install.md"));
    }
    for config in &facts.nvidia_by_default {
        found.push(problem(
            format!("{} makes NVIDIA's runtime the default", config.display()),
            "images that set NVIDIA_VISIBLE_DEVICES then get every GPU without a claim: make runc the default",
        ));
    }
}

fn agent(facts: &Facts, found: &mut Vec<Finding>) {
    let serves = |socket: &&super::facts::Socket| socket.answers && !socket.others;
    let ours = facts.sockets.iter().filter(serves).count();
    if ours == 0 {
        found.push(problem(
            format!("no node agent of {} serves this node", facts.driver),
            "see whether its DaemonSet has a pod here, and that pod's log",
        ));
    }
    match &facts.ready {
        Ok(ready) if ready.ready => found.push(Fine("the node agent is ready".to_owned())),
        Ok(ready) => found.push(problem(
            format!("the node agent isn't ready: {}", ready.text.replace('\n', "; ")),
            "what isn't as it should be is named in it",
        )),
        Err(_) => {}
    }
}

fn incumbent(facts: &Facts, found: &mut Vec<Finding>) {
    for socket in facts.sockets.iter().filter(|socket| socket.others && socket.answers) {
        found.push(problem(
            format!("another driver of this name serves {}", socket.path.display()),
            "remove it from this node: of NVIDIA's driver the ComputeDomain half may stay",
        ));
    }
    let has = |name: &str| facts.files.iter().any(|file| file == name);
    if has("checkpoint.json") {
        found.push(problem(
            "claims of NVIDIA's DRA driver have not been taken over yet",
            "start the node agent, and see its log if this stays (docs/upgrade.md)",
        ));
    }
    let left: Vec<_> = facts
        .files
        .iter()
        .filter_map(|file| file.strip_prefix("mps/"))
        .map(|id| format!("mps-control-daemon-{id}"))
        .collect();
    if !left.is_empty() {
        found.push(problem(
            format!("NVIDIA's DRA driver left MPS daemons: {}", left.join(", ")),
            "delete these Deployments when their claims' pods have ended",
        ));
    }
    if has("checkpoint.json.bad") {
        found.push(problem(
            "the state of NVIDIA's DRA driver couldn't be read at the take-over",
            "restart pods that were started before it; then delete checkpoint.json.bad",
        ));
    }
}

fn claims(facts: &Facts, found: &mut Vec<Finding>) {
    for file in
        facts.files.iter().filter(|file| file.starts_with("claims/") && file.ends_with(".bad"))
    {
        found.push(problem(
            format!("{file} was no journal record"),
            "its claim counts as not prepared: restart its pod; then delete the file",
        ));
    }
    let boot = facts.boot.as_ref().ok();
    let prepared = |record: &&Record| {
        record.phase == Phase::Prepared && boot.is_none_or(|boot| record.boot_id == *boot)
    };
    for record in &facts.records {
        let claim = &record.claim;
        if record.known_steps().is_none() {
            found.push(problem(
                format!("claim {claim} was prepared by a newer version"),
                "update the node agent on this node",
            ));
        } else if record.phase != Phase::Prepared {
            found.push(problem(
                format!("claim {claim} is half done"),
                "the node agent's log says what keeps it from being undone",
            ));
        } else if prepared(&record) && !has_spec(facts, record) {
            found.push(problem(
                format!(
                    "claim {claim} is prepared and has no CDI spec in {}",
                    facts.cdi.path.display()
                ),
                "the node agent writes it at its next start: delete its pod",
            ));
        }
    }
    let mps = |record: &&Record| {
        let steps = record.known_steps().unwrap_or_default();
        steps
            .into_iter()
            .any(|step| matches!(step, KnownStep::MpsDaemon { .. } | KnownStep::ShareDaemon { .. }))
    };
    let served = facts.records.iter().filter(prepared).filter(mps).count();
    if let (Err(why), 1..) = (&facts.mps, served) {
        found.push(problem(
            format!("{served} claims need the MPS host: {why}"),
            "see the pod of its DaemonSet on this node",
        ));
    }
    found.push(Fine(format!("{} claims are held", facts.records.len())));
}

fn has_spec(facts: &Facts, record: &Record) -> bool {
    facts.cdi.files.iter().any(|(name, _)| name.contains(record.claim.uid.as_str()))
}

fn kubelet(facts: &Facts, found: &mut Vec<Finding>) {
    let Ok(claims) = &facts.kubelet else { return };
    let held =
        |uid: &gpu_dra_model::ClaimUid| facts.records.iter().any(|record| record.claim.uid == *uid);
    for claim in claims {
        if claim.uid.as_ref().is_some_and(|uid| !held(uid)) {
            found.push(problem(
                format!("the kubelet has claim {} prepared, the journal hasn't", claim.name),
                "restart its pod",
            ));
        }
    }
    for record in &facts.records {
        if !claims.iter().any(|claim| claim.uid.as_ref() == Some(&record.claim.uid)) {
            found.push(problem(
                format!("claim {} is held, and the kubelet doesn't know it", record.claim),
                "if its pod is gone, it is given up by itself after a while",
            ));
        }
    }
}

fn cluster(facts: &Facts, found: &mut Vec<Finding>) {
    let Ok(cluster) = &facts.cluster else { return };
    if let Ok(node) = &cluster.node {
        found.extend(node.troubles.iter().map(|trouble| problem(trouble, "see docs/operating.md")));
    }
    let Ok(slices) = &cluster.slices else { return };
    let published = published(slices);
    match &facts.desired {
        Ok(desired) if *desired == published => {
            found.push(Fine(format!("{} devices are published", published.len())));
        }
        Ok(desired) => {
            let few = |names: Vec<&String>| {
                let shown: Vec<_> = names.iter().take(5).map(|name| name.as_str()).collect();
                let more = if names.len() > shown.len() { ", …" } else { "" };
                format!("{}{more}", shown.join(", "))
            };
            let lacking: Vec<_> = desired.difference(&published).collect();
            let extra: Vec<_> = published.difference(desired).collect();
            found.push(problem(
                format!(
                    "what is published isn't what is here: {} devices are missing ({}), {} are too many ({})",
                    lacking.len(), few(lacking), extra.len(), few(extra)
                ),
                "see the node agent's log; run this with the agent's own settings (kubectl exec into its pod)",
            ));
        }
        Err(_) => {}
    }
}

/// The devices of the pool's newest generation.
fn published(slices: &[SliceInfo]) -> BTreeSet<String> {
    let newest = slices.iter().map(|slice| slice.generation).max();
    let current = slices.iter().filter(|slice| Some(slice.generation) == newest);
    current.flat_map(|slice| slice.devices.iter().cloned()).collect()
}
