//! What the node itself says: the driver, the folders, the sockets, the kubelet's state, the
//! agent's probe. Nothing is written, but for a file of no content that shows whether the CDI
//! folder can be written to, and that is gone again.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_claims::{KnownStep, Record};
use gpu_dra_driverroot::{DriverFiles, DriverRoot};
use gpu_dra_executor::Journal;
use gpu_dra_model::{BootId, ClaimUid, Inventory};
use gpu_dra_node::neighbours::is_others_socket;
use gpu_dra_node::runtime_config::RuntimeConfig;
use gpu_dra_nvml::Gpus as _;
use gpu_dra_sharing::MpsClient;
use gpu_dra_slices::{Names, OwnInstance, build};
use serde_json::Value;

use super::Args;
use super::facts::{Cdi, Cluster, Facts, Found, KubeletClaim, Ready, Socket};

/// For each thing on this machine that may not answer.
const LIMIT: Duration = Duration::from_secs(3);

/// Looks at everything.
pub(super) fn look(args: &Args, cluster: Found<Cluster>) -> Facts {
    let plugin_dir = args.kubelet_root.join("plugins").join(args.driver_name.as_str());
    let root = args.place.root();
    let gpus = gpu_dra_node::driver(root.clone(), args.place.trees());
    let gpus = gpus.probe().map_err(|error| error.to_string());
    let records = records(&plugin_dir);
    let desired = gpus.as_ref().map_err(Clone::clone);
    let desired = desired.map(|found| self::desired(args, found, &records, &plugin_dir));
    Facts {
        driver: args.driver_name.clone(),
        kernel: read(&args.place.proc.join("sys/kernel/osrelease")),
        boot: read(&args.place.proc.join("sys/kernel/random/boot_id"))
            .and_then(|text| BootId::new(text).map_err(|error| error.to_string())),
        driver_root: root.host.clone(),
        driver_files: driver_files(&root, &gpus),
        gpus,
        cdi: cdi(&args.cdi_root),
        files: files(&plugin_dir),
        records,
        sockets: sockets(args, &plugin_dir),
        kubelet: kubelet(&args.kubelet_root.join("dra_manager_state"), args.driver_name.as_str()),
        mps: MpsClient::new(&args.mps_socket, LIMIT).list().map_err(|error| error.to_string()),
        ready: ready(args.http),
        nvidia_by_default: nvidia_by_default(&args.place.host_root_here),
        runtime_config: RuntimeConfig::read(&args.place.host_root_here),
        desired,
        plugin_dir,
        cluster,
    }
}

fn driver_files(root: &DriverRoot, gpus: &Found<Inventory>) -> Found<usize> {
    let inventory = gpus.as_ref().map_err(|_| "not looked for without NVML".to_owned())?;
    let files = DriverFiles::collect(root, &inventory.driver.driver);
    let files = files.map_err(|error| error.to_string())?;
    Ok(files.libraries.len() + files.programs.len())
}

fn read(path: &Path) -> Found<String> {
    let text = std::fs::read_to_string(path);
    text.map(|text| text.trim().to_owned()).map_err(|error| format!("{}: {error}", path.display()))
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

fn records(plugin_dir: &Path) -> Vec<Record> {
    let dir = plugin_dir.join("claims");
    let record = |name: std::ffi::OsString| {
        let uid = Journal::claim_of_file_name(name.to_str()?)?;
        let bytes = std::fs::read(dir.join(name)).ok()?;
        Record::decode(&bytes).ok().or_else(|| Record::stand_in(&uid, &bytes))
    };
    names(&dir).into_iter().filter_map(record).collect()
}

fn files(plugin_dir: &Path) -> Vec<String> {
    let list = |dir: &str| {
        let below = names(&plugin_dir.join(dir)).into_iter();
        below.map(move |name| format!("{dir}{}", name.to_string_lossy())).collect::<Vec<_>>()
    };
    let mut files = list("");
    files.extend(list("claims/"));
    files.extend(list("mps/"));
    files
}

fn desired(
    args: &Args,
    found: &Inventory,
    records: &[Record],
    plugin_dir: &Path,
) -> BTreeSet<String> {
    let names = std::fs::read(plugin_dir.join("names.json"));
    let mut names: Names =
        names.ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
    names.assign(found);
    let steps = records.iter().flat_map(|record| record.known_steps().unwrap_or_default());
    let own = steps.filter_map(|step| match step {
        KnownStep::CreatePartition { gpu, partition, .. } => {
            Some(OwnInstance { gpu: gpu.clone(), partition: *partition })
        }
        _ => None,
    });
    let policy = args.policy.policy(args.node_name.as_ref());
    let pool = build(found, &names, &policy, &own.collect()).pool;
    pool.devices().map(|device| device.name.clone()).collect()
}

fn cdi(path: &Path) -> Cdi {
    let probe = path.join(format!(".gpu-dra-doctor.{}.tmp", std::process::id()));
    let writable = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
    let files = names(path).into_iter().map(|name| {
        let size = std::fs::metadata(path.join(&name)).map_or(0, |data| data.len());
        (name.to_string_lossy().into_owned(), size)
    });
    Cdi {
        path: path.to_owned(),
        writable: writable.map_err(|error| error.to_string()),
        files: files.collect(),
    }
}

fn sockets(args: &Args, plugin_dir: &Path) -> Vec<Socket> {
    let registry = args.kubelet_root.join("plugins_registry");
    let driver = args.driver_name.as_str();
    let ours = |name: &str| name.starts_with(driver) && name.ends_with("@reg.sock");
    let registration = names(&registry).into_iter().filter_map(|name| {
        let others = is_others_socket(&args.driver_name, &name);
        let path = registry.join(&name);
        (others || name.to_str().is_some_and(ours)).then_some((path, others))
    });
    let service = names(plugin_dir).into_iter().filter_map(|name| {
        let is = name.to_str().is_some_and(|name| name.ends_with(".sock"));
        is.then(|| (plugin_dir.join(&name), name == "dra.sock"))
    });
    let all = registration.chain(service);
    all.map(|(path, others)| Socket { answers: UnixStream::connect(&path).is_ok(), path, others })
        .collect()
}

/// The kubelet's own file, of which nothing but names, UIDs and devices is taken.
fn kubelet(path: &Path, driver: &str) -> Found<Vec<KubeletClaim>> {
    let file: Value = serde_json::from_str(&read(path)?).map_err(|error| error.to_string())?;
    let data = file.get("Data").and_then(Value::as_str).unwrap_or("{}");
    let data: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
    let claims = data.get("ClaimInfoStateList").and_then(Value::as_array);
    let claim = |claim: &Value| {
        let text = |field: &str| claim.get(field).and_then(Value::as_str).unwrap_or_default();
        let ours = claim.get("DriverState")?.get(driver)?;
        let devices = ours.get("Devices").and_then(Value::as_array).into_iter().flatten();
        let name = |device: &Value| device.get("DeviceName")?.as_str().map(str::to_owned);
        Some(KubeletClaim {
            uid: ClaimUid::new(text("ClaimUID")).ok(),
            name: format!("{}/{}", text("Namespace"), text("ClaimName")),
            pods: claim.get("PodUIDs").and_then(Value::as_object).map_or(0, |pods| pods.len()),
            devices: devices.filter_map(name).collect(),
        })
    };
    Ok(claims.into_iter().flatten().filter_map(claim).collect())
}

/// Asks the agent's probe.
fn ready(http: Option<SocketAddr>) -> Found<Ready> {
    let Some(mut address) = http else {
        return Err("not asked: give --http as the agent has it".to_owned());
    };
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(64 * 1024).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| format!("{address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok(Ready { ready: head.starts_with("HTTP/1.1 200"), text: body.trim().to_owned() })
}

/// Container runtimes whose default is NVIDIA's: it gives all GPUs to whoever sets a variable.
fn nvidia_by_default(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut look = |path: PathBuf, keys: &[&str]| {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let sets = |line: &str| {
            let line = line.trim_start().trim_start_matches('"');
            keys.iter().any(|key| line.starts_with(key)) && line.contains("\"nvidia\"")
        };
        if text.lines().any(sets) {
            found.push(path);
        }
    };
    look(root.join("etc/containerd/config.toml"), &["default_runtime_name"]);
    look(root.join("etc/docker/daemon.json"), &["default-runtime"]);
    for (folder, key) in [
        ("etc/containerd/conf.d", "default_runtime_name"),
        ("etc/crio/crio.conf.d", "default_runtime"),
    ] {
        for name in names(&root.join(folder)) {
            look(root.join(folder).join(name), &[key]);
        }
    }
    found
}
