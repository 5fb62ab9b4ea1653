//! The report as text: what is wrong first, then everything that is known, by where it is from.

use std::fmt::Write as _;

use gpu_dra_claims::{Record, Step};

use super::facts::{Facts, Found};
use super::judge::Finding;

/// What is wrong, and what isn't.
pub(super) fn findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        match finding {
            Finding::Fine(what) => line(&mut text, &format!("OK       {what}")),
            Finding::Problem { what, remedy } => {
                line(&mut text, &format!("PROBLEM  {what}\n         -> {remedy}"));
            }
        }
    }
    text
}

/// All of it.
pub(super) fn report(facts: &Facts, judged: &[Finding]) -> String {
    let mut text = findings(judged);
    section(&mut text, "versions");
    line(&mut text, &format!("gpu-dra {}", env!("CARGO_PKG_VERSION")));
    value(&mut text, "kernel", &facts.kernel);
    value(&mut text, "boot", &facts.boot.as_ref().map(ToString::to_string).map_err(Clone::clone));
    line(&mut text, &format!("driver root {}", facts.driver_root.display()));
    inventory(&mut text, facts);
    section(&mut text, "journal");
    for record in &facts.records {
        line(&mut text, &self::record(record));
    }
    section(&mut text, &format!("files in {}", facts.plugin_dir.display()));
    facts.files.iter().for_each(|file| line(&mut text, file));
    section(&mut text, &format!("CDI specs in {}", facts.cdi.path.display()));
    for (name, bytes) in &facts.cdi.files {
        line(&mut text, &format!("{name} ({bytes} bytes)"));
    }
    section(&mut text, "sockets");
    for socket in &facts.sockets {
        let answers = if socket.answers { "answers" } else { "doesn't answer" };
        line(&mut text, &format!("{} {answers}", socket.path.display()));
    }
    section(&mut text, "the kubelet's claims");
    match &facts.kubelet {
        Err(why) => line(&mut text, &format!("unknown: {why}")),
        Ok(claims) => claims.iter().for_each(|claim| {
            let uid = claim.uid.as_ref().map_or("?", |uid| uid.as_str());
            let devices = claim.devices.join(", ");
            line(&mut text, &format!("{} ({uid}) for {} pods: {devices}", claim.name, claim.pods));
        }),
    }
    section(&mut text, "MPS host");
    match &facts.mps {
        Err(why) => line(&mut text, &format!("unknown: {why}")),
        Ok(daemons) => daemons.iter().for_each(|daemon| {
            let reason = daemon.reason.as_deref().unwrap_or("-");
            let (id, state, starts) = (&daemon.id, &daemon.state, daemon.starts);
            line(&mut text, &format!("{id}: {state:?}, started {starts} times, reason {reason}"));
        }),
    }
    section(&mut text, "readiness");
    let ready = facts.ready.as_ref().map(|ready| ready.text.as_str());
    line(&mut text, ready.unwrap_or_else(|why| why.as_str()));
    cluster(&mut text, facts);
    text
}

fn inventory(text: &mut String, facts: &Facts) {
    section(text, "GPUs");
    match &facts.gpus {
        Err(why) => line(text, &format!("unknown: {why}")),
        Ok(inventory) => {
            let driver = &inventory.driver;
            let nvml = driver.nvml.as_deref().unwrap_or("?");
            let cuda = driver.cuda.map_or_else(|| "?".to_owned(), |cuda| cuda.to_string());
            line(text, &format!("driver {}, NVML {nvml}, CUDA {cuda}", driver.driver));
            value(text, "driver files", &facts.driver_files.clone().map(|count| count.to_string()));
            // The inventory is values that NVML and sysfs gave: no person wrote any of it.
            let json = serde_json::to_string_pretty(&inventory.gpus);
            line(text, &json.unwrap_or_else(|error| error.to_string()));
            for broken in &inventory.broken {
                line(text, &format!("broken: index {}: {}", broken.index, broken.reason));
            }
        }
    }
}

fn cluster(text: &mut String, facts: &Facts) {
    section(text, "API server");
    let cluster = match &facts.cluster {
        Ok(cluster) => cluster,
        Err(why) => return line(text, why),
    };
    line(text, &format!("kubeconfig {}", cluster.server));
    match &cluster.node {
        Err(why) => line(text, &format!("Node unknown: {why}")),
        Ok(node) => line(
            text,
            &format!(
                "kubelet {}, {}, Linux {}, {}",
                node.kubelet, node.runtime, node.kernel, node.os
            ),
        ),
    }
    section(text, "slices as published");
    match &cluster.slices {
        Err(why) => line(text, &format!("unknown: {why}")),
        Ok(slices) => {
            for slice in slices {
                let (name, generation, of) = (&slice.name, slice.generation, slice.of);
                let devices = slice.devices.join(" ");
                line(text, &format!("{name} generation {generation}, 1 of {of}: {devices}"));
                slice.taints.iter().for_each(|taint| line(text, &format!("  taint {taint}")));
            }
        }
    }
    section(text, "devices as desired");
    match &facts.desired {
        Err(why) => line(text, &format!("unknown: {why}")),
        Ok(devices) => {
            line(text, &devices.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
        }
    }
    section(text, "Events of this driver on the Node");
    match &cluster.events {
        Err(why) => line(text, &format!("unknown: {why}")),
        Ok(events) => events.iter().for_each(|event| line(text, event)),
    }
}

/// Typed fields alone: what a newer version adds, and configs, stay out.
fn record(record: &Record) -> String {
    let mut text = format!(
        "{} ({}): {:?}, version {}, boot {}",
        record.claim, record.claim.uid, record.phase, record.version, record.boot_id
    );
    if record.adopted.is_some() {
        text.push_str(", taken over");
    }
    for device in &record.devices {
        let part = device.part.as_ref().map_or_else(String::new, |part| {
            let at = part.placement();
            format!(" at {}+{}", at.start, at.size)
        });
        let admin = if device.admin { ", watches" } else { "" };
        text.push_str(&format!("\n  {} on {}{part}{admin}", device.device, device.gpu));
    }
    for step in &record.steps {
        let name = match step {
            Step::Known(step) => serde_json::to_value(step)
                .ok()
                .and_then(|step| step.get("step")?.as_str().map(str::to_owned))
                .unwrap_or_default(),
            Step::Unknown(_) => "of a newer version".to_owned(),
        };
        text.push_str(&format!("\n  step {name}"));
    }
    text
}

fn section(text: &mut String, name: &str) {
    line(text, &format!("\n== {name}"));
}

fn value(text: &mut String, name: &str, found: &Found<String>) {
    let found = match found {
        Ok(value) => value.clone(),
        Err(why) => format!("unknown: {why}"),
    };
    line(text, &format!("{name} {found}"));
}

fn line(text: &mut String, words: &str) {
    // A String takes whatever is written to it.
    let _infallible = writeln!(text, "{words}");
}
