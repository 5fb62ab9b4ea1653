//! The container runtime's part: resolves CDI device names in spec files and says what a container would get.
//! It starts nothing; a container "runs" by being recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

/// What a container gets by its CDI devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The container's name.
    pub name: String,
    /// The CDI device names that the kubelet passed, in order.
    pub cdi_ids: Vec<String>,
    /// `NAME=value`; of one name the last counts.
    pub env: Vec<String>,
    /// Paths of device nodes in the container.
    pub device_nodes: Vec<String>,
    /// What is mounted where.
    pub mounts: Vec<Mount>,
    /// Command lines of the hooks, by the point at which they are called.
    pub hooks: Vec<(String, Vec<String>)>,
    /// The spec files that this came from.
    pub specs: Vec<PathBuf>,
}

/// A mount of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The source on the host.
    pub host_path: String,
    /// The place in the container.
    pub container_path: String,
}

/// Devices that no spec file has, or that two files of the same directory have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CDI device injection failed: unresolvable CDI devices {}", .0.join(", "))]
pub struct Unresolvable(pub Vec<String>);

/// One device: the edits of its spec file and its own.
#[derive(Debug)]
struct Found {
    file: PathBuf,
    common: Value,
    own: Value,
}

impl Container {
    /// Adds what the devices bring, searched in `directories` of ascending priority.
    ///
    /// # Errors
    /// The names that can't be resolved; then nothing is added.
    pub fn inject(&mut self, ids: &[String], directories: &[PathBuf]) -> Result<(), Unresolvable> {
        let known = read(directories);
        let mut devices = Vec::new();
        let mut missing = Vec::new();
        for id in ids {
            match known.get(id) {
                Some(Some(found)) => devices.push(found),
                _ => missing.push(id.clone()),
            }
        }
        if !missing.is_empty() {
            return Err(Unresolvable(missing));
        }
        self.cdi_ids.extend_from_slice(ids);
        let mut seen = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            if ids[..index].contains(&ids[index]) {
                continue;
            }
            // The edits that all devices of a file share come once.
            if !seen.contains(&&device.file) {
                seen.push(&device.file);
                self.edit(&device.common);
            }
            self.edit(&device.own);
        }
        self.specs = seen.into_iter().cloned().collect();
        Ok(())
    }

    fn edit(&mut self, edits: &Value) {
        let list = |field: &str| edits[field].as_array().into_iter().flatten();
        let text =
            |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        self.env.extend(list("env").filter_map(Value::as_str).map(str::to_owned));
        self.device_nodes.extend(list("deviceNodes").map(|node| text(node, "path")));
        self.mounts.extend(list("mounts").map(|mount| Mount {
            host_path: text(mount, "hostPath"),
            container_path: text(mount, "containerPath"),
        }));
        self.hooks.extend(list("hooks").map(|hook| {
            let args = hook["args"].as_array().into_iter().flatten();
            let command = std::iter::once(text(hook, "path"))
                .chain(args.skip(1).filter_map(Value::as_str).map(str::to_owned));
            (text(hook, "hookName"), command.collect())
        }));
    }
}

/// All devices by qualified name; `None` where two files of one directory have the same.
fn read(directories: &[PathBuf]) -> BTreeMap<String, Option<Found>> {
    let mut known = BTreeMap::new();
    for directory in directories {
        let mut here: BTreeMap<String, Option<Found>> = BTreeMap::new();
        for file in files(directory) {
            let Some(spec) = spec(&file) else { continue };
            let kind = spec["kind"].as_str().unwrap_or_default();
            for device in spec["devices"].as_array().into_iter().flatten() {
                let name = format!("{kind}={}", device["name"].as_str().unwrap_or_default());
                let found = Found {
                    file: file.clone(),
                    common: spec["containerEdits"].clone(),
                    own: device["containerEdits"].clone(),
                };
                let entry = if here.contains_key(&name) { None } else { Some(found) };
                here.insert(name, entry);
            }
        }
        known.extend(here);
    }
    known
}

fn files(directory: &Path) -> Vec<PathBuf> {
    // A directory that isn't there has no specs.
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "json" || ext == "yaml"));
    files.sort();
    files
}

/// A file that can't be read is passed over with all its devices, as runtimes do.
fn spec(file: &Path) -> Option<Value> {
    let read = std::fs::read(file).map_err(|err| err.to_string()).and_then(|bytes| {
        crate::json::read_yaml(&bytes).map(|document| document.value).map_err(|err| err.message)
    });
    match read {
        Ok(spec) if spec["cdiVersion"].is_string() && spec["kind"].is_string() => Some(spec),
        Ok(_) => {
            tracing::warn!(file = %file.display(), "no CDI spec: cdiVersion or kind is missing");
            None
        }
        Err(why) => {
            tracing::warn!(file = %file.display(), why, "CDI spec passed over");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(dir: &Path, file: &str, devices: &[&str]) {
        let devices: Vec<Value> = devices
            .iter()
            .map(|name| json!({"name": name, "containerEdits": {
                "env": [format!("OWN={name}")], "deviceNodes": [{"path": format!("/dev/{name}")}],
            }}))
            .collect();
        let spec = json!({
            "cdiVersion": "0.5.0", "kind": "v.com/gpu", "devices": devices,
            "containerEdits": {"env": ["COMMON=1"], "mounts": [{"hostPath": "/a", "containerPath": "/b"}],
                "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["h", "x"]}]},
        });
        std::fs::write(dir.join(file), spec.to_string()).unwrap();
    }

    fn inject(ids: &[&str], dirs: &[PathBuf]) -> Result<Container, Unresolvable> {
        let mut container = Container::default();
        let ids: Vec<String> = ids.iter().map(|id| format!("v.com/gpu={id}")).collect();
        container.inject(&ids, dirs).map(|()| container)
    }

    #[test]
    fn shared_edits_come_once() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a.json", &["x", "y"]);
        let got = inject(&["x", "y", "x"], &[dir.path().into()]).unwrap();
        assert_eq!(got.env, ["COMMON=1", "OWN=x", "OWN=y"]);
        assert_eq!(got.device_nodes, ["/dev/x", "/dev/y"]);
        assert_eq!(
            got.hooks,
            [("createContainer".to_owned(), vec!["/h".to_owned(), "x".to_owned()])]
        );
        assert_eq!(got.specs, [dir.path().join("a.json")]);
    }

    #[test]
    fn conflicts_and_unknown_names_are_unresolvable() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a.json", &["x"]);
        write(dir.path(), "b.json", &["x"]);
        std::fs::write(dir.path().join("c.json"), "{").unwrap();
        std::fs::write(dir.path().join("d.tmp"), "{").unwrap();
        let dirs = [dir.path().to_path_buf(), "/nonexistent".into()];
        let err = inject(&["x", "z"], &dirs).unwrap_err();
        assert_eq!(err.0, ["v.com/gpu=x", "v.com/gpu=z"]);
        // A directory of higher priority settles it.
        let over = tempfile::tempdir().unwrap();
        write(over.path(), "a.json", &["x"]);
        assert!(inject(&["x"], &[dir.path().into(), over.path().into()]).is_ok());
    }
}
