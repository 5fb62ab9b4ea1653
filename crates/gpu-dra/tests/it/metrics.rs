//! What a running node agent tells Prometheus: whose the processes on its GPUs are, what went
//! well and what didn't; and that dashboard, alerts and documentation speak of just that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpu_dra::rig::Agent;
use gpu_dra_model::ClaimRef;
use gpu_dra_sim_data::control::{Control, Event, Fault, GpuControl, Process};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::exposition::{Page, expressions};
use crate::world::{PROGRAM, World, prepare, unprepare};

/// The claim's share of the last L4, in bytes.
const SHARE: u64 = 8 << 30;

/// UIDs of pods.
const TRAINER: &str = "8dbc5577-d0e2-4706-8787-57d52c03ddf2";
const LATER: &str = "0f6c1f3a-2b7e-4c55-9d1f-000000000002";
const PARTED: &str = "0f6c1f3a-2b7e-4c55-9d1f-000000000003";

/// A port that nobody has now.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Status and body; None where nobody listens.
fn try_get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if path == "/metrics" && status == 200 {
        let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
        assert!(head.to_ascii_lowercase().contains(kind), "{head}");
    }
    Some((status, body.to_owned()))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    try_get(address, path).expect("somebody listens")
}

async fn until_ready(agent: &mut Agent, address: SocketAddr) {
    let is_ready =
        || async { try_get(address, "/readyz").is_some_and(|(status, _)| status == 200) };
    // No kubelet registers it here: all the rest is.
    let is_published = || async {
        is_ready().await
            || try_get(address, "/readyz").is_some_and(|(_, text)| text.contains(" slices\n"))
    };
    agent.wait_until("it has published", is_published).await.unwrap();
}

/// The claim is used by these pods, each a name and a UID.
async fn reserve(world: &World, claim: &ClaimRef, pods: &[(&str, &str)]) {
    let mut object = world.claims.get(&claim.name).await.unwrap();
    let users: Vec<_> = pods
        .iter()
        .map(|(name, uid)| json!({"resource": "pods", "name": name, "uid": uid}))
        .collect();
    object.status.as_mut().unwrap().reserved_for =
        Some(serde_json::from_value(json!(users)).unwrap());
    world.claims.replace_status(&claim.name, &PostParams::default(), &object).await.unwrap();
}

/// A process of the host's, by its cgroup.
fn runs(world: &World, pid: u32, cgroup: &str) {
    let dir = world.rig.host_proc().join(pid.to_string());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
}

fn of_pod(uid: &str) -> String {
    let uid = uid.replace('-', "_");
    format!(
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice/cri-containerd-{}.scope",
        "1f".repeat(32)
    )
}

fn control(world: &World, change: impl FnOnce(&mut Control)) {
    world.rig.staged.state_dir.control_with(change).unwrap();
}

/// A node on which something of everything has happened: three L4, the last of them given out
/// in shares, and an H100 in partitions.
struct Busy {
    // It ends before its folders go.
    agent: Agent,
    world: World,
    address: SocketAddr,
    uuids: Vec<String>,
}

impl Busy {
    async fn new() -> Self {
        let world = World::new("3xl4+1xh100").await;
        let node = world.rig.staged.state_dir.node().unwrap();
        let uuids: Vec<_> = node.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let shares = format!("off,{}=accounted", uuids[2]);
        let address = free_port();
        let (mut agent, plugin) =
            world.agent_with(|command| with_http(command, address, &shares)).await;
        until_ready(&mut agent, address).await;
        let log = agent.log.clone();
        let listens =
            || std::fs::read_to_string(&log).unwrap().contains("whose events are heard heard=");
        world.until(&mut agent, || async { listens() }).await;

        let train = world.claim("train", &["gpu-0"], &[]).await;
        reserve(&world, &train, &[("trainer", TRAINER)]).await;
        prepare(&plugin, &train).await.unwrap();
        // It has come since the claim was prepared.
        reserve(&world, &train, &[("trainer", TRAINER), ("later", LATER)]).await;
        let part = world.claim("part", &["gpu-3-mig-1g10gb-19-6"], &[]).await;
        reserve(&world, &part, &[("parted", PARTED)]).await;
        prepare(&plugin, &part).await.unwrap();
        let idle = world.claim("idle", &["gpu-1"], &[]).await;
        prepare(&plugin, &idle).await.unwrap();
        let share = json!({"devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE, "device": "gpu-2",
            "shareID": "11111111-1111-1111-1111-111111111111",
            "consumedCapacity": {"memory": SHARE.to_string()},
        }]}});
        let share = world.claim_with("share", share).await;
        prepare(&plugin, &share).await.unwrap();
        let ended = world.claim("ended", &["gpu-3-mig-1g10gb-19-0"], &[]).await;
        prepare(&plugin, &ended).await.unwrap();
        unprepare(&plugin, &ended).await.unwrap();
        let none = world.claim("none", &["gpu-9"], &[]).await;
        prepare(&plugin, &none).await.unwrap_err();

        let instance = world.rig.staged.state_dir.state().unwrap().gpus[3].instances[0].id;
        runs(&world, 4001, &of_pod(TRAINER));
        runs(&world, 4002, &of_pod(LATER));
        runs(&world, 4003, "/system.slice/nvidia-dcgm.service");
        runs(&world, 4004, &of_pod(PARTED));
        let process = |pid, memory_mib| Process { pid, memory_mib, ..Process::default() };
        let gpus = [
            (
                "0",
                vec![
                    Process { sm_percent: 40, memory_percent: 5, ..process(4001, 500) },
                    Process { mps: true, ..process(4002, 300) },
                    process(4003, 70),
                ],
            ),
            // It has no /proc any more.
            ("1", vec![process(4999, 3)]),
            (
                "3",
                vec![Process {
                    gpu_instance: Some(instance),
                    compute_instance: Some(0),
                    ..process(4004, 900)
                }],
            ),
        ];
        control(&world, |control| {
            for (gpu, processes) in gpus {
                control
                    .gpus
                    .insert(gpu.to_owned(), GpuControl { processes, ..GpuControl::default() });
            }
            control.events.extend([Event::xid("1", 79), Event::xid("1", 31)]);
            control.faults.push(Fault {
                function: "nvmlDeviceGetMPSComputeRunningProcesses_v3".to_owned(),
                gpu: Some("2".to_owned()),
                error: Some(999),
                ..Fault::default()
            });
        });
        let heard = || std::fs::read_to_string(&log).unwrap().contains("Xid(31)");
        world.until(&mut agent, || async { heard() }).await;
        Self { agent, world, address, uuids }
    }

    fn page(&self) -> Page {
        let (status, text) = get(self.address, "/metrics");
        assert_eq!(status, 200, "{text}");
        Page::parse(&text)
    }
}

fn with_http(command: &mut Command, address: SocketAddr, shares: &str) {
    command.args(["--health-ms", "20", "--rescan-ms", "20", "--retry-ms", "20"]);
    command.args(["--http", &address.to_string(), "--shares", shares]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_claims_pods_are_told_with_what_they_use() {
    let node = Busy::new().await;
    let page = node.page();
    let of_claim = |name: &str, claim: &str, pod: &str| {
        let labels = [("claim_namespace", "default"), ("claim_name", claim), ("pod_name", pod)];
        page.value(name, &labels)
    };
    let mib = |mib: u64| Some((mib << 20) as f64);
    assert_eq!(of_claim("gpu_dra_claim_memory_used_bytes", "train", "trainer"), mib(500));
    assert_eq!(of_claim("gpu_dra_claim_sm_utilization_ratio", "train", "trainer"), Some(0.4));
    assert_eq!(of_claim("gpu_dra_claim_memory_utilization_ratio", "train", "trainer"), Some(0.05));
    assert_eq!(of_claim("gpu_dra_claim_memory_used_bytes", "train", "later"), mib(300));
    assert_eq!(of_claim("gpu_dra_claim_processes", "train", "later"), Some(1.0));
    // On a MIG device the driver tells no load.
    assert_eq!(of_claim("gpu_dra_claim_memory_used_bytes", "part", "parted"), mib(900));
    assert_eq!(of_claim("gpu_dra_claim_sm_utilization_ratio", "part", "parted"), None);
    let labels = page.labels("gpu_dra_claim_memory_used_bytes", &[("claim_name", "part")]);
    assert_eq!(labels["device"], "gpu-3-mig-1g10gb-19-6");
    assert_eq!(labels["gpu"], node.uuids[3]);
    assert!(!labels["gpu_instance"].is_empty() && labels["compute_instance"] == "0", "{labels:?}");
    // Who uses nothing is told too.
    assert_eq!(of_claim("gpu_dra_claim_processes", "idle", ""), Some(0.0));
    assert_eq!(
        page.value("gpu_dra_claim_share_memory_bytes", &[("claim_name", "share")]),
        Some(SHARE as f64)
    );
    let unclaimed = |gpu: usize| {
        page.value("gpu_dra_unclaimed_memory_used_bytes", &[("gpu", &node.uuids[gpu])])
    };
    assert_eq!([unclaimed(0), unclaimed(1), unclaimed(2)], [mib(70), mib(3), None]);
    // One GPU doesn't tell, and that is told.
    assert_eq!(page.value("gpu_dra_usage_up", &[]), Some(0.0));
    let failed = [("function", "nvmlDeviceGetMPSComputeRunningProcesses_v3"), ("code", "999")];
    assert_eq!(page.value("gpu_dra_nvml_errors_total", &failed), Some(1.0));
    // A page in between has the same sample.
    let again = node.page();
    assert_eq!(again.value("gpu_dra_nvml_errors_total", &failed), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_on_the_node_is_counted() {
    let mut node = Busy::new().await;
    let address = node.address;
    // While taints are being written it is not.
    let is_settled = || async {
        let page = Page::parse(&get(address, "/metrics").1);
        page.value("gpu_dra_publish_in_sync", &[]) == Some(1.0)
    };
    node.agent.wait_until("its slices are in sync", is_settled).await.unwrap();
    let page = node.page();
    let is = |name: &str, labels: &[(&str, &str)], value: f64| {
        assert_eq!(page.value(name, labels), Some(value), "{name} {labels:?}");
    };
    let calls = "gpu_dra_claim_operation_duration_seconds_count";
    is(calls, &[("operation", "prepare"), ("result", "success")], 5.0);
    is(calls, &[("operation", "prepare"), ("result", "refused")], 1.0);
    is(calls, &[("operation", "unprepare"), ("result", "success")], 1.0);
    let phases = "gpu_dra_claim_phase_duration_seconds_count";
    for (phase, prepares, unprepares) in [
        ("wait", 6.0, 1.0),
        ("get_claim", 6.0, 0.0),
        ("plan", 6.0, 1.0),
        ("journal", 6.0, 1.0),
        // What was asked for first is looked at on the hardware, the one for nothing isn't.
        ("effects", 5.0, 1.0),
        ("cdi", 5.0, 1.0),
    ] {
        is(phases, &[("operation", "prepare"), ("phase", phase)], prepares);
        is(phases, &[("operation", "unprepare"), ("phase", phase)], unprepares);
    }
    is("gpu_dra_claims", &[("phase", "prepared")], 4.0);
    is("gpu_dra_held_devices", &[("type", "gpu")], 2.0);
    is("gpu_dra_held_devices", &[("type", "mig")], 1.0);
    is("gpu_dra_held_devices", &[("type", "share")], 1.0);
    is("gpu_dra_gpus", &[("state", "answering")], 4.0);
    is("gpu_dra_devices", &[("type", "gpu"), ("state", "unhealthy")], 1.0);
    is("gpu_dra_device_taints", &[("key", "gpu.nvidia.com/xid"), ("effect", "NoExecute")], 1.0);
    let xid = |xid| [("event", "xid"), ("xid", xid)];
    is("gpu_dra_gpu_events_total", &[xid("79")[0], xid("79")[1], ("severity", "NoExecute")], 1.0);
    is("gpu_dra_gpu_events_total", &[xid("31")[0], xid("31")[1], ("severity", "Ignore")], 1.0);
    is("gpu_dra_dropped_fields", &[], 0.0);
    is("gpu_dra_nvml_up", &[], 1.0);
    is("gpu_dra_ready", &[], 0.0);
    is("gpu_dra_journal_files_moved_aside", &[], 0.0);
    let written = page.sum(
        "gpu_dra_api_requests_total",
        &[("verb", "create"), ("resource", "resourceslices"), ("code", "201")],
    );
    assert!(written >= 1.0, "{written}");
    let looked =
        page.sum("gpu_dra_nvml_operation_duration_seconds_count", &[("operation", "probe")]);
    assert!(looked >= 1.0, "{looked}");

    // A record that is none lies aside.
    let bad = node.world.rig.journal().join("0f6c1f3a-2b7e-4c55-9d1f-000000000009.json");
    std::fs::write(bad, "no JSON").unwrap();
    is("gpu_dra_takeover_state_unreadable", &[], 0.0);
    std::fs::write(node.world.rig.plugin_dir().join("checkpoint.json.bad"), "no JSON").unwrap();
    drop(node.page());
    assert_eq!(node.page().value("gpu_dra_journal_files_moved_aside", &[]), Some(1.0));
    assert_eq!(node.page().value("gpu_dra_takeover_state_unreadable", &[]), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_does_not_come_back_fails_the_probes_until_it_does() {
    let world = World::new("1xl4").await;
    let address = free_port();
    let (mut agent, _plugin) = world
        .agent_with(|command| {
            with_http(command, address, "off");
            command.args(["--nvml-patience-ms", "500"]);
        })
        .await;
    until_ready(&mut agent, address).await;
    assert_eq!(get(address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/elsewhere").0, 404);
    control(&world, |control| {
        control.faults.push(Fault {
            function: "nvmlDeviceGetFieldValues".to_owned(),
            delay_ms: 8_000,
            ..Fault::default()
        });
    });
    let began = Instant::now();
    world.until(&mut agent, || async { get(address, "/healthz").0 == 503 }).await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let sentence = "NVML has not come back from health for ";
    assert!(get(address, "/healthz").1.contains(sentence));
    let (status, text) = get(address, "/readyz");
    assert!(status == 503 && text.contains(sentence), "{text}");
    let stuck = Page::parse(&get(address, "/metrics").1);
    assert!(stuck.value("gpu_dra_nvml_operation_in_flight_seconds", &[]).unwrap() > 0.5);
    control(&world, |control| control.faults.clear());
    world.until(&mut agent, || async { get(address, "/healthz").0 == 200 }).await;
}

/// Nothing is served while a take-over waits for NVML; to be killed for that would end the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_waits_for_the_driver_is_alive_and_says_what_for() {
    let world = World::new("1xh100").await;
    let gpu = world.rig.staged.state_dir.node().unwrap().gpus[0].uuid.clone();
    let claim = "0f6c1f3a-2b7e-4c55-9d1f-000000000042";
    let (pool, device) = (gpu_dra::rig::NODE, "gpu-0-mig-1g10gb-19-0");
    // Only the GPU can say where a MIG device lies.
    let state = json!({
        "checkpointState": "PrepareCompleted",
        "status": {"allocation": {"devices": {"results": [{"request": "mig",
            "driver": "gpu.nvidia.com", "pool": pool, "device": device}]}}},
        "preparedDevices": [{"devices": [{"gpu": null, "mig": {
            "concrete": {"giId": 7, "ciId": 0, "parentUUID": gpu,
                "migUUID": "MIG-33333333-0000-0000-0000-000000000000"},
            "device": {"Requests": ["mig"], "PoolName": pool, "DeviceName": device,
                "CDIDeviceIDs": [format!("k8s.gpu.nvidia.com/claim={claim}-{device}")]},
        }}], "configState": {}}],
    });
    let file = json!({"checksum": 1, "v1": {},
        "v2": {"checksum": 2, "preparedClaims": {claim: state}, "nodeBootID": "x"}});
    std::fs::create_dir_all(world.rig.plugin_dir()).unwrap();
    std::fs::write(world.rig.plugin_dir().join("checkpoint.json"), file.to_string()).unwrap();
    control(&world, |control| control.init = Some(9));
    let address = free_port();
    let mut command = world.rig.agent_command(Path::new(PROGRAM));
    with_http(&mut command, address, "off");
    let mut agent = world.rig.start_agent(command, "agent.log").unwrap();
    let waits = || async {
        try_get(address, "/readyz")
            .is_some_and(|(status, text)| status == 503 && text.contains("nothing is served until"))
    };
    agent.wait_until("it says what it waits for", waits).await.unwrap();
    assert_eq!(get(address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/metrics").0, 503);
    control(&world, |control| control.init = None);
    until_ready(&mut agent, address).await;
    assert_eq!(get(address, "/metrics").0, 200);
}

/// One whose driver doesn't work, and one without a driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_tells_a_driver_that_does_not_work_from_none() {
    for (init, words) in [(18, "doesn't match kernel driver"), (4, "no permission")] {
        let world = World::new("1xl4").await;
        control(&world, |control| control.init = Some(init));
        let address = free_port();
        let (mut agent, _plugin) =
            world.agent_with(|command| with_http(command, address, "off")).await;
        until_ready(&mut agent, address).await;
        let (status, text) = get(address, "/readyz");
        assert!(status == 503 && text.contains(words), "{text}");
        assert_eq!(get(address, "/healthz").0, 200, "a restart wouldn't help");
        assert_eq!(
            Page::parse(&get(address, "/metrics").1).value("gpu_dra_nvml_up", &[]),
            Some(0.0)
        );
    }
}

/// An API server that drops a field: it is told as long as it is so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_the_api_server_drops_are_told() {
    let world = World::new("1xh100").await;
    world.rig.api.faults().drop_field("Device", "consumesCounters");
    let address = free_port();
    let (mut agent, _plugin) = world.agent_with(|command| with_http(command, address, "off")).await;
    let is_told = || async {
        try_get(address, "/metrics").filter(|(status, _)| *status == 200).is_some_and(
            |(_, text)| {
                let page = Page::parse(&text);
                let gate = [("gate", "DRAPartitionableDevices")];
                page.value("gpu_dra_dropped_fields", &[]).is_some_and(|fields| fields >= 1.0)
                    && page.value("gpu_dra_missing_features", &gate) == Some(1.0)
            },
        )
    };
    agent.wait_until("what was dropped is told", is_told).await.unwrap();
    let page = Page::parse(&get(address, "/metrics").1);
    let whole = [("gate", "DRADeviceTaints")];
    assert_eq!(page.value("gpu_dra_missing_features", &whole), Some(0.0));
}

/// A node agent's page and a controller's, one after the other.
async fn pages() -> (Page, Page) {
    let node = Busy::new().await;
    let address = free_port();
    let mut command = Command::new(PROGRAM);
    command.env_remove("RUST_LOG").args([
        "controller",
        "--identity",
        "test",
        "--http",
        &address.to_string(),
    ]);
    command.arg("--kubeconfig").arg(&node.world.rig.kubeconfig);
    let mut controller = node.world.rig.start_agent(command, "controller.log").unwrap();
    controller
        .wait_until("it answers", || async { try_get(address, "/metrics").is_some() })
        .await
        .unwrap();
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    (node.page(), Page::parse(&text))
}

fn monitoring(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&monitoring(file)).unwrap()
}

/// All that are texts under this key, wherever.
fn texts<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts(value, key, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_and_alerts_ask_for_what_there_is() {
    let (node, controller) = pages().await;
    let all = node.and(controller);
    for family in all.families.keys() {
        assert!(all.has_samples(family), "{family} has no sample; the test must bring one about");
    }

    let rules = yaml("rules.yaml");
    assert_eq!(yaml("prometheusrule.yaml")["spec"], rules, "the same rules, as an object");
    let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
    let mut asked = Vec::new();
    texts(&rules, "expr", &mut asked);
    texts(&dashboard, "expr", &mut asked);
    texts(&dashboard, "query", &mut asked);
    asked.retain(|text| *text != "prometheus");
    assert!(asked.len() > 30, "only {} expressions found", asked.len());
    let mut used = BTreeSet::new();
    for text in asked {
        let expression = expressions(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for (metric, labels) in &expression.selectors {
            assert!(all.has_samples(metric), "{text}: there is no {metric}");
            for label in labels {
                assert!(all.may_have(metric, label), "{text}: {metric} has no label {label}");
            }
            used.insert(metric.clone());
        }
        for label in &expression.grouped {
            let known = expression.selectors.iter().any(|(metric, _)| all.may_have(metric, label));
            assert!(known, "{text}: nothing in it has a label {label}");
        }
    }
    assert!(used.len() > 20, "{used:?}");
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.filter_map(|panel| panel["targets"].as_array()).flatten() {
        let expression = expressions(target["expr"].as_str().unwrap()).unwrap();
        for label in target["legendFormat"].as_str().unwrap().split("{{").skip(1) {
            let label = label.split("}}").next().unwrap().to_owned();
            assert!(expression.grouped.contains(&label), "{target} has no {label}");
        }
    }
    for rule in rules["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("GpuDra"), "{name}");
        assert!(
            matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning" | "info")),
            "{name}"
        );
        for part in ["summary", "description"] {
            assert!(rule["annotations"][part].is_string(), "{name} has no {part}");
        }
        // What an alert says of its labels, its expression must have.
        let expression = expressions(rule["expr"].as_str().unwrap()).unwrap();
        for label in rule["annotations"].to_string().split("$labels.").skip(1) {
            let label: String =
                label.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let has = expression.selectors.iter().any(|(metric, _)| all.may_have(metric, &label));
            let kept = expression.grouped.is_empty() || expression.grouped.contains(&label);
            assert!(has && kept, "{name} speaks of {label}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_metrics_are_the_ones_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (node, controller) = pages().await;
    let mut right = text.clone();
    for (name, page) in [("node", node), ("controller", controller)] {
        let mark = format!("<!-- what `gpu-dra {name}` tells; UPDATE_DOCS=1 -->\n");
        let (before, rest) = right.split_once(&mark).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        right = format!("{before}{mark}\n{}\n<!-- end -->{after}", page.markdown());
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    } else {
        assert!(text == right, "docs/metrics.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

#[test]
fn every_alert_is_explained() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rules = yaml("rules.yaml");
    let mut names = Vec::new();
    texts(&rules, "alert", &mut names);
    let mut missing: BTreeMap<_, _> =
        names.iter().map(|name| (*name, text.contains(name))).collect();
    missing.retain(|_, is_there| !*is_there);
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
}
