//! What a running node agent makes of the health of its GPUs: taints in the API server, the
//! health stream, Events, and how all of it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use futures::StreamExt as _;
use gpu_dra::rig::{Agent, NODE};
use gpu_dra_kubelet::client::{HealthApi, Plugin};
use gpu_dra_kubelet::{DeviceHealth, HealthState};
use gpu_dra_model::ClaimRef;
use gpu_dra_sim_data::control::{Control, Event, Fault, Lost};
use k8s_openapi::api::core::v1::Event as KubernetesEvent;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::world::{PROGRAM, World, make_foreign, prepare, unprepare};

/// An agent that looks often, for which nothing is over by itself.
async fn agent(world: &World) -> (Agent, Plugin) {
    let policy = world.rig.dir().join("lasting.json");
    std::fs::write(&policy, r#"{"settledReadings": 1000000}"#).unwrap();
    let (mut agent, plugin) = world
        .agent_with(|command| {
            command.args(["--health-ms", "20", "--rescan-ms", "20", "--retry-ms", "20"]);
            command.arg("--health-policy").arg(&policy);
        })
        .await;
    world.until(&mut agent, || world.is_complete()).await;
    until_heard(world, &mut agent).await;
    (agent, plugin)
}

/// What happens before the agent listens is for nobody.
async fn until_heard(world: &World, agent: &mut Agent) {
    let log = agent.log.clone();
    let listens =
        || std::fs::read_to_string(&log).unwrap().contains("whose events are heard heard=");
    world.until(agent, || async { listens() }).await;
}

/// The taints of health by device, as `kubectl taint` writes them; devices without are left out.
async fn taints(world: &World) -> BTreeMap<String, Vec<String>> {
    let slices = world.published().await;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let taints = devices.map(|device| {
        let taints = device.taints.unwrap_or_default().into_iter();
        let taints = taints.filter(|taint| taint.key != "gpu.nvidia.com/monitoring").map(|taint| {
            let value = taint.value.map(|value| format!("={value}")).unwrap_or_default();
            format!("{}{value}:{}", taint.key, taint.effect)
        });
        (device.name, taints.collect::<Vec<_>>())
    });
    taints.filter(|(_, taints)| !taints.is_empty()).collect()
}

async fn until_tainted(world: &World, agent: &mut Agent, expected: &[(&str, &[&str])]) {
    let expected: BTreeMap<String, Vec<String>> = expected
        .iter()
        .map(|(device, taints)| {
            ((*device).to_owned(), taints.iter().map(|taint| (*taint).to_owned()).collect())
        })
        .collect();
    world.until(agent, || async { taints(world).await == expected }).await;
}

fn control(world: &World, change: impl FnOnce(&mut Control)) {
    world.rig.staged.state_dir.control_with(change).unwrap();
}

fn raise(world: &World, event: Event) {
    control(world, |control| control.events.push(event));
}

fn asks_for(world: &World, gpu: &str, action: u32) {
    control(world, |control| {
        control.gpus.entry(gpu.to_owned()).or_default().recovery_action = action;
    });
}

async fn told(plugin: &Plugin, api: HealthApi, device: &str) -> DeviceHealth {
    let list = Box::pin(plugin.watch_health(api).await.unwrap()).next().await.unwrap().unwrap();
    list.into_iter().find(|health| health.device.as_str() == device).unwrap()
}

/// Messages of the Events on an object of this kind and name.
async fn events(world: &World, kind: &str, name: &str, reason: &str) -> Vec<String> {
    let api = kube::Api::<KubernetesEvent>::all(world.rig.client().await.unwrap());
    let all = api.list(&ListParams::default()).await.unwrap();
    let of = |event: &KubernetesEvent| {
        event.involved_object.kind.as_deref() == Some(kind)
            && event.involved_object.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some(reason)
    };
    all.into_iter().filter(of).filter_map(|event| event.message).collect()
}

/// A pod uses the claim.
async fn reserve(world: &World, claim: &ClaimRef, pod: &str) {
    let mut object = world.claims.get(&claim.name).await.unwrap();
    let user = json!([{"resource": "pods", "name": pod, "uid": "0000-pod"}]);
    object.status.as_mut().unwrap().reserved_for = Some(serde_json::from_value(user).unwrap());
    world.claims.replace_status(&claim.name, &PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xid_79_taints_its_gpu_and_tells_everybody_until_it_is_recovered() {
    let world = World::new("2xl4").await;
    let (mut agent, plugin) = agent(&world).await;
    let train = world.claim("train", &["gpu-0"], &[]).await;
    reserve(&world, &train, "trainer").await;
    prepare(&plugin, &train).await.unwrap();
    let held = world.outside();

    raise(&world, Event::xid("0", 79));
    until_tainted(&world, &mut agent, &[("gpu-0", &["gpu.nvidia.com/xid=79:NoExecute"])]).await;
    for api in [HealthApi::V1, HealthApi::V1Alpha1] {
        let sick = told(&plugin, api, "gpu-0").await;
        assert_eq!(sick.state, HealthState::Unhealthy);
        assert!(sick.message.contains("Xid 79: the GPU has fallen off the bus"), "{sick:?}");
        let well = told(&plugin, api, "gpu-1").await;
        assert_eq!((well.state, well.message.as_str()), (HealthState::Healthy, ""));
    }
    for (kind, name) in [("Node", NODE), ("Pod", "trainer")] {
        world
            .until(&mut agent, || async {
                let said = events(&world, kind, name, "DeviceTainted").await;
                said.iter().any(|text| text.contains("gpu-0") && text.contains("Xid 79"))
            })
            .await;
    }

    // What is milder leaves the worst as it is, and the driver's word ends it.
    raise(&world, Event::xid("0", 74));
    asks_for(&world, "0", 2);
    let both: &[&str] =
        &["gpu.nvidia.com/xid=79:NoExecute", "gpu.nvidia.com/recovery-action=reboot:NoExecute"];
    until_tainted(&world, &mut agent, &[("gpu-0", both)]).await;
    asks_for(&world, "0", 0);
    until_tainted(&world, &mut agent, &[]).await;
    assert_eq!(told(&plugin, HealthApi::V1, "gpu-0").await.state, HealthState::Healthy);
    world
        .until(&mut agent, || async {
            !events(&world, "Node", NODE, "DeviceTaintGone").await.is_empty()
        })
        .await;
    assert_eq!(world.outside(), held, "health touches no claim");
    unprepare(&plugin, &train).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xid_of_a_program_is_counted_and_nothing_else() {
    let world = World::new("2xl4").await;
    let (mut agent, _plugin) = agent(&world).await;
    world.rig.staged.state_dir.control_with(|control| control.call_log = true).unwrap();
    let requests = world.rig.api.requests();
    // What a start asks for once: its Node, by two who need it, and the watch of its slices.
    let has_started =
        || requests.of("get", "nodes") == 2 && requests.of("watch", "resourceslices") == 1;
    world.until(&mut agent, || async { has_started() }).await;
    let before = requests.snapshot();
    for xid in [13, 31, 13] {
        raise(&world, Event::xid("1", xid));
    }
    let log = agent.log.clone();
    let counted = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().any(|line| line.contains("Xid(13)") && line.contains("times=2"))
            && log.lines().any(|line| line.contains("Xid(31)") && line.contains("times=1"))
    };
    world.until(&mut agent, || async { counted() }).await;
    assert_eq!(requests.snapshot(), before);
    // A reading asks for no more than it needs.
    let calls = world.rig.staged.state_dir.calls().unwrap();
    assert!(calls.get("nvmlDeviceGetFieldValues").is_some_and(|times| *times > 0), "{calls:?}");
    assert_eq!(calls.get("nvmlDeviceGetName"), None, "an enumeration: {calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_counted_in_memory_is_told_without_an_effect() {
    let world = World::new("2xl4").await;
    let (mut agent, plugin) = agent(&world).await;
    control(&world, |control| {
        control.gpus.entry("1".to_owned()).or_default().ecc.volatile_uncorrected = 2;
    });
    let warned: &[(&str, &[&str])] = &[("gpu-1", &["gpu.nvidia.com/ecc=uncorrected:None"])];
    until_tainted(&world, &mut agent, warned).await;
    let health = told(&plugin, HealthApi::V1, "gpu-1").await;
    assert_eq!(health.state, HealthState::Healthy);
    assert!(health.message.contains("2 uncorrected memory errors"), "{health:?}");
    // The event of such an error keeps new pods away.
    raise(&world, Event { xid: None, kind: 2, ..Event::xid("1", 0) });
    let kept: &[(&str, &[&str])] = &[("gpu-1", &["gpu.nvidia.com/ecc=double-bit:NoSchedule"])];
    until_tainted(&world, &mut agent, kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_is_lost_is_tainted_alone_and_cannot_be_had_until_it_is_back() {
    for lost in [Lost::Error, Lost::Dropped] {
        let world = World::new("2xl4").await;
        let (mut agent, plugin) = agent(&world).await;
        control(&world, |control| {
            control.gpus.entry("0".to_owned()).or_default().lost = Some(lost);
        });
        let gone: &[(&str, &[&str])] = &[("gpu-0", &["gpu.nvidia.com/gpu-lost:NoExecute"])];
        until_tainted(&world, &mut agent, gone).await;
        assert_eq!(told(&plugin, HealthApi::V1, "gpu-0").await.state, HealthState::Unhealthy);
        let sick = world.claim("sick", &["gpu-0"], &[]).await;
        let refused = prepare(&plugin, &sick).await.unwrap_err();
        assert!(refused.contains("doesn't answer NVML"), "{refused}");
        let well = world.claim("well", &["gpu-1"], &[]).await;
        prepare(&plugin, &well).await.unwrap();

        // A restart forgets neither the GPU nor its taint, and writes nothing.
        let published = world.published().await;
        agent.stop().unwrap();
        drop(agent);
        let (mut agent, plugin) = self::agent(&world).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(world.published().await, published, "{lost:?}");

        control(&world, |control| control.gpus.clear());
        until_tainted(&world, &mut agent, &[]).await;
        prepare(&plugin, &sick).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_gpu_that_is_partitioned_keeps_its_devices() {
    let world = World::new("2xh100").await;
    let (mut agent, plugin) = agent(&world).await;
    let names = || async {
        let slices = world.published().await;
        let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        devices.map(|device| device.name).collect::<BTreeSet<_>>()
    };
    let all = names().await;
    let part = world.claim("part", &["gpu-0-mig-1g10gb-19-6"], &[]).await;
    prepare(&plugin, &part).await.unwrap();
    control(&world, |control| {
        control.gpus.entry("0".to_owned()).or_default().lost = Some(Lost::Dropped);
    });
    let its: BTreeSet<_> = all.iter().filter(|name| name.starts_with("gpu-0")).cloned().collect();
    world
        .until(&mut agent, || async {
            taints(&world).await.into_keys().collect::<BTreeSet<_>>() == its
        })
        .await;
    assert_eq!(names().await, all);
    control(&world, |control| control.gpus.clear());
    until_tainted(&world, &mut agent, &[]).await;
    unprepare(&plugin, &part).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loses_its_only_gpu_says_so() {
    let world = World::new("1xl4").await;
    let (mut agent, _plugin) = agent(&world).await;
    control(&world, |control| {
        control.gpus.entry("0".to_owned()).or_default().lost = Some(Lost::Dropped);
    });
    let gone: &[(&str, &[&str])] = &[("gpu-0", &["gpu.nvidia.com/gpu-lost:NoExecute"])];
    until_tainted(&world, &mut agent, gone).await;
    control(&world, |control| control.gpus.clear());
    until_tainted(&world, &mut agent, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_an_instance_taints_the_devices_that_lie_there() {
    let world = World::new("1xh100").await;
    let (mut agent, plugin) = agent(&world).await;
    let (small, middle) = ("gpu-0-mig-1g10gb-19-6", "gpu-0-mig-2g20gb-14-4");
    let claim = world.claim("both", &[small, middle], &[]).await;
    control(&world, |control| control.call_log = true);
    prepare(&plugin, &claim).await.unwrap();
    // With the MIG mode on, GPUs have to be registered anew.
    let registered = || {
        let calls = world.rig.staged.state_dir.calls().unwrap();
        calls.get("nvmlDeviceRegisterEvents").is_some_and(|times| *times > 0)
    };
    world.until(&mut agent, || async { registered() }).await;
    let instances = world.rig.staged.state_dir.state().unwrap().gpus[0].instances.clone();
    let sick = instances.iter().find(|instance| instance.placement.start == 6).unwrap();
    raise(&world, Event { gpu_instance: Some(sick.id), ..Event::xid("0", 48) });
    world.until(&mut agent, || async { !taints(&world).await.is_empty() }).await;
    let tainted: BTreeSet<String> = taints(&world).await.into_keys().collect();
    assert!(tainted.contains(small), "{tainted:?}");
    assert!(tainted.iter().all(|name| name.ends_with("-6")), "{tainted:?}");
    assert_eq!(told(&plugin, HealthApi::V1, small).await.state, HealthState::Unhealthy);
    assert_eq!(told(&plugin, HealthApi::V1, middle).await.state, HealthState::Healthy);
    // The scheduler looks at what can be had first.
    let slices = world.published().await;
    let names: Vec<_> =
        slices.into_iter().flat_map(|s| s.spec.devices.unwrap_or_default()).collect();
    let last: BTreeSet<String> =
        names.iter().rev().take(tainted.len()).map(|device| device.name.clone()).collect();
    assert_eq!(last, tainted);

    // One of the whole GPU is about everything on it, but does nothing to its monitor.
    raise(&world, Event::xid("0", 79));
    world
        .until(&mut agent, || async {
            let all = taints(&world).await;
            all.get(middle) == Some(&vec!["gpu.nvidia.com/xid=79:NoExecute".to_owned()])
                && all.get("gpu-0-monitor") == Some(&vec!["gpu.nvidia.com/xid=79:None".to_owned()])
        })
        .await;
    unprepare(&plugin, &claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_static_instance_taints_that_alone() {
    let world = World::new("1xa100-40:mig=on").await;
    make_foreign(&world, 0, 19, (0, 1));
    make_foreign(&world, 0, 19, (1, 1));
    let (mut agent, _plugin) = agent(&world).await;
    let instances = world.rig.staged.state_dir.state().unwrap().gpus[0].instances.clone();
    let sick = instances.iter().find(|instance| instance.placement.start == 1).unwrap();
    raise(&world, Event { gpu_instance: Some(sick.id), ..Event::xid("0", 95) });
    let one: &[(&str, &[&str])] = &[("gpu-0-mig-1g5gb-19-1", &["gpu.nvidia.com/xid=95:NoExecute"])];
    until_tainted(&world, &mut agent, one).await;
    clear(&world, &["gpu-0-mig-1g5gb-19-1"]);
    until_tainted(&world, &mut agent, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_taints_and_a_person_clears_them() {
    let world = World::new("2xl4").await;
    let (mut agent, _plugin) = agent(&world).await;
    raise(&world, Event::xid("1", 79));
    let sick: &[(&str, &[&str])] = &[("gpu-1", &["gpu.nvidia.com/xid=79:NoExecute"])];
    until_tainted(&world, &mut agent, sick).await;
    agent.stop().unwrap();
    drop(agent);
    let (published, writes) = (world.published().await, world.rig.api.requests().writes());
    let (mut agent, _plugin) = self::agent(&world).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(world.published().await, published);
    assert_eq!(world.rig.api.requests().writes(), writes);

    clear(&world, &["gpu-1", "--key", "xid"]);
    until_tainted(&world, &mut agent, &[]).await;
    world
        .until(&mut agent, || async {
            let said = events(&world, "Node", NODE, "TaintCleared").await;
            said.iter().any(|text| text.contains("gpu.nvidia.com/xid") && text.contains("gpu-1"))
        })
        .await;
    // It happens again, and the old word doesn't end it; a new one does.
    raise(&world, Event::xid("1", 79));
    until_tainted(&world, &mut agent, sick).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(taints(&world).await.len(), 1);
    let uuid = world.rig.staged.state_dir.node().unwrap().gpus[1].uuid.clone();
    clear(&world, &[&uuid, "--node", NODE]);
    until_tainted(&world, &mut agent, &[]).await;
}

fn clear(world: &World, args: &[&str]) {
    let output = clear_taint(world, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn clear_taint(world: &World, args: &[&str]) -> std::process::Output {
    let mut command = Command::new(PROGRAM);
    command.arg("clear-taint").args(args).arg("--kubeconfig").arg(&world.rig.kubeconfig);
    command.output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_nobody_can_fulfil_is_an_error_of_the_command() {
    let world = World::new("1xl4").await;
    let (_agent, _plugin) = agent(&world).await;
    for (args, words) in [
        (["gpu-7"].as_slice(), "no node publishes gpu-7"),
        (&["Not a device"], "must name a device"),
        (&["gpu-0", "--node", "elsewhere"], "no node publishes gpu-0"),
    ] {
        let output = clear_taint(&world, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_is_a_file_and_one_with_unknown_fields_is_refused() {
    let world = World::new("1xl4").await;
    let file = world.rig.dir().join("policy.json");
    std::fs::write(&file, r#"{"xids": {"31": "NoSchedule"}, "gpuLosst": "Warn"}"#).unwrap();
    let mut command = world.rig.agent_command(PROGRAM.as_ref());
    let output = command.arg("--health-policy").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for words in ["policy.json", "unknown field `gpuLosst`", "docs/health.md"] {
        assert!(said.contains(words), "{said}");
    }

    std::fs::write(&file, r#"{"xids": {"31": "NoSchedule"}}"#).unwrap();
    let (mut agent, _plugin) = world
        .agent_with(|command| {
            command.arg("--health-policy").arg(&file);
        })
        .await;
    until_heard(&world, &mut agent).await;
    raise(&world, Event::xid("0", 31));
    let sick: &[(&str, &[&str])] = &[("gpu-0", &["gpu.nvidia.com/xid=31:NoSchedule"])];
    until_tainted(&world, &mut agent, sick).await;
}

/// NVML hangs on one GPU for longer than the test would wait; the other falls off the bus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_hangs_delays_no_xid_of_another() {
    let world = World::new("2xl4").await;
    let (mut agent, plugin) = agent(&world).await;
    control(&world, |control| {
        control.faults.push(Fault {
            function: "nvmlDeviceGetFieldValues".to_owned(),
            gpu: Some("0".to_owned()),
            delay_ms: 8_000,
            ..Fault::default()
        });
    });
    // It is being asked each 20 ms.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let began = std::time::Instant::now();
    raise(&world, Event::xid("1", 79));
    let sick = "gpu.nvidia.com/xid=79:NoExecute".to_owned();
    world
        .until(&mut agent, || async {
            taints(&world).await.get("gpu-1") == Some(&vec![sick.clone()])
        })
        .await;
    assert!(began.elapsed() < std::time::Duration::from_secs(6), "{:?}", began.elapsed());
    // Of the one that hangs nobody knows anything.
    let unread = "gpu.nvidia.com/unreadable:None".to_owned();
    world
        .until(&mut agent, || async {
            taints(&world).await.get("gpu-0") == Some(&vec![unread.clone()])
        })
        .await;
    let unknown = told(&plugin, HealthApi::V1, "gpu-0").await;
    assert_eq!(unknown.state, HealthState::Unknown);
    assert!(unknown.message.contains("doesn't come back"), "{unknown:?}");
    control(&world, |control| control.faults.clear());
    until_tainted(&world, &mut agent, &[("gpu-1", &["gpu.nvidia.com/xid=79:NoExecute"])]).await;
    assert_eq!(told(&plugin, HealthApi::V1, "gpu-0").await.state, HealthState::Healthy);
}
