//! The node object. It is written once and then only when something changes: the lab has no heartbeats.

use std::sync::Arc;

use serde_json::json;

use super::NAME;
use crate::api::{ApiServer, KUBERNETES_VERSION, WriteOptions, now};
use crate::error::ApiError;
use crate::kinds::NODE;

/// Creates the node unless it is there.
pub(super) fn register(server: &Arc<ApiServer>, name: &str) -> Result<(), ApiError> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let resources = json!({"cpu": cores.to_string(), "memory": "64Gi", "pods": "110"});
    let condition = |kind: &str, status: &str, reason: &str| {
        let time = now();
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        })
    };
    let node = json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "kubeletVersion": KUBERNETES_VERSION, "operatingSystem": "linux", "architecture": arch,
                "containerRuntimeVersion": "none://simulated", "osImage": "simulated node",
                "kernelVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
                "kubeProxyVersion": "",
            },
        },
    });
    match server.create(&NODE, "", node, &WriteOptions::by(NAME)) {
        Err(err) if err.reason == "AlreadyExists" => Ok(()),
        done => done.map(|_| ()),
    }
}
