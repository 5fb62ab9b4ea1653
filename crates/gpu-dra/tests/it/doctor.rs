//! `gpu-dra doctor` on a node that works, one that doesn't, and one with secrets lying about.

use std::process::Output;

use gpu_dra::rig::NODE;

use crate::takeover::program;
use crate::world::{World, prepare};

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn problems(report: &str) -> Vec<&str> {
    report.lines().filter(|line| line.starts_with("PROBLEM")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_works_has_everything_in_its_report_and_nothing_secret() {
    let world = World::new("2xh100").await;
    let claim = world.claim("train", &["gpu-0"], &[]).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (mut agent, plugin) = world
        .agent_with(|command| {
            command.arg("--http").arg(port.to_string());
        })
        .await;
    prepare(&plugin, &claim).await.unwrap();
    world.until(&mut agent, || world.is_complete()).await;

    // Secrets where a report could pick them up.
    let secret = "eyJhbGciOiJSUzI1NiJ9.hunter2hunter2hunter2.c2lnbmF0dXJl";
    let plugin_dir = world.rig.plugin_dir();
    std::fs::write(plugin_dir.join("notes.txt"), format!("token: {secret}\n")).unwrap();
    let record = world.rig.journal().join(format!("{}.json", claim.uid));
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replacen('{', &format!("{{\"note\":\"{secret}\","), 1)).unwrap();
    let kubeconfig = world.rig.dir().join("with-token");
    let mut text: serde_json::Value =
        serde_saphyr::from_str(&std::fs::read_to_string(&world.rig.kubeconfig).unwrap()).unwrap();
    text["users"] = serde_json::json!([{"name": "secret", "user": {"token": secret}}]);
    text["contexts"][0]["context"]["user"] = "secret".into();
    std::fs::write(&kubeconfig, text.to_string()).unwrap();

    let doctor = || {
        let mut command = program(&world, "doctor");
        command.args(["--node-name", NODE, "--http", &port.to_string()]);
        command.arg("--kubeconfig").arg(&kubeconfig).env("SECRET_TOKEN", secret);
        command
    };
    let report = said(&doctor().output().unwrap());
    for secret in [secret, "hunter2"] {
        assert!(!report.contains(secret), "{report}");
    }
    for part in [
        "OK       driver",
        "2 GPUs answer",
        "1 claims are held",
        "default/train",
        "gpu-0 on GPU-",
        &format!("k8s.gpu.nvidia.com-claim_{}.json", claim.uid),
        "dra@plugin.sock answers",
        "== slices as published",
        "== MPS host",
        "unknown: the MPS host isn't running",
        "devices are published",
        "NVIDIA H100",
    ] {
        assert!(report.contains(part), "no {part:?} in:\n{report}");
    }
    assert!(!report.contains("what is published isn't what is here"), "{report}");
    let file = world.rig.dir().join("report.txt");
    let short = said(&doctor().arg("-o").arg(&file).output().unwrap());
    assert!(short.contains("OK       driver") && !short.contains("== GPUs"), "{short}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("== GPUs"));
    agent.stop().unwrap();
    let report = said(&doctor().output().unwrap());
    assert!(
        report.contains("PROBLEM  no node agent of gpu.nvidia.com serves this node"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_judges_what_is_missing() {
    let world = World::new("1xh100").await;
    std::fs::create_dir_all(world.rig.plugin_dir()).unwrap();
    std::fs::write(world.rig.plugin_dir().join("checkpoint.json"), "{}").unwrap();
    let containerd = world.rig.staged.host_root.join("etc/containerd");
    std::fs::create_dir_all(&containerd).unwrap();
    std::fs::write(
        containerd.join("config.toml"),
        "  default_runtime_name = \"nvidia\"\n  enable_cdi = false\n",
    )
    .unwrap();
    let listener = world.rig.kubelet_root.join("plugins_registry/gpu.nvidia.com-reg.sock");
    let _other = std::os::unix::net::UnixListener::bind(listener).unwrap();
    std::fs::remove_dir_all(&world.rig.cdi_root).unwrap();
    let report = said(&program(&world, "doctor").output().unwrap());
    let problems = problems(&report).join("\n");
    for part in [
        "the folder of CDI specs, can't be written to",
        "no node agent of gpu.nvidia.com",
        "another driver of this name serves",
        "have not been taken over yet",
        "makes NVIDIA's runtime the default",
        "/etc/containerd/config.toml has enable_cdi = false",
    ] {
        assert!(problems.contains(part), "no {part:?} in:\n{report}");
    }
    assert!(report.contains("not asked: give --node-name"), "{report}");
}

#[test]
fn it_works_with_nothing_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(crate::world::PROGRAM);
    command.env_remove("KUBECONFIG").env("HOME", dir.path()).arg("doctor");
    for flag in [
        "--kubelet-root",
        "--cdi-root",
        "--driver-root",
        "--host-root-here",
        "--sysfs",
        "--proc",
        "--dev",
    ] {
        command.arg(flag).arg(dir.path().join("none"));
    }
    command.args(["--node-name", "node-a"]);
    let report = said(&command.output().unwrap());
    assert!(report.contains("PROBLEM  NVML doesn't answer"), "{report}");
    assert!(report.contains("OK       0 claims are held"), "{report}");
}
