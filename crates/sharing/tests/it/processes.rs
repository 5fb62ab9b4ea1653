//! Daemons that run: how fast, with what, and what happens when they are killed.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpu_dra_sharing::{DaemonState, MpsError, MpsEvent, RefusalKind};
use gpu_dra_sim_data::Layout;
use serde_json::json;

use crate::staged::{Staged, id, is_ready, kill, pid, spec, wait_until};

#[test]
fn a_daemon_is_ready_within_150_ms_with_its_limits() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let mut times = Vec::new();
    for n in 0..8 {
        let limits = json!({"activeThreadPercentage": 25, "memory": 10240});
        let since = Instant::now();
        let status = client.ensure(&id(&format!("claim-{n}")), &spec(&staged, n, limits)).unwrap();
        times.push(since.elapsed());
        assert_eq!(status.starts, 1);
    }
    times.sort();
    println!("ensure, 8 times: {times:?}");
    assert!(times[4] < Duration::from_millis(150), "{times:?}");
    let claim = id("claim-3");
    assert_eq!(staged.ask(&claim, "get_default_active_thread_percentage"), "25.0");
    assert_eq!(staged.ask(&claim, "get_default_device_pinned_mem_limit 0"), "10G");
    assert_eq!(client.list().unwrap().len(), 8);
    let since = Instant::now();
    for n in 0..8 {
        client.stop(&id(&format!("claim-{n}"))).unwrap();
    }
    println!("stop, 8 times: {:?} together", since.elapsed());
    staged.assert_nothing_is_left();
}

#[test]
fn a_killed_daemon_is_back_within_a_second_and_its_server_is_gone() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let (told, events) = mpsc::channel();
    let _follow = client.follow(move |event| told.send(event).unwrap()).unwrap();
    assert_eq!(events.recv().unwrap(), MpsEvent::Daemons(vec![]));
    let claim = id("claim");
    let first = pid(&client.ensure(&claim, &spec(&staged, 0, json!({}))).unwrap());
    staged.ask(&claim, "start_server -uid 1000");
    let server = staged.ask(&claim, "get_server_list").parse::<u32>().unwrap();
    assert!(staged.processes().contains(&server));

    let since = Instant::now();
    kill(first);
    let again =
        wait_until(&client, &claim, Duration::from_secs(1), |s| is_ready(s) && s.starts == 2);
    println!("back after kill -9: {:?}", since.elapsed());
    assert_ne!(pid(&again), first);
    let reason = again.reason.clone().unwrap();
    assert!(
        reason.contains("killed by signal 9") && reason.contains("clients are lost"),
        "{reason}"
    );
    assert_eq!(staged.processes(), [pid(&again)], "the old server is gone");

    let mut states = Vec::new();
    while let Ok(MpsEvent::Changed(status)) = events.recv_timeout(Duration::from_secs(5)) {
        let done = status == again;
        states.push(status.state);
        if done {
            break;
        }
    }
    // Quick changes may be told as one, but never the last.
    assert_eq!(states.last(), Some(&again.state));
    client.stop(&claim).unwrap();
    assert_eq!(
        events.iter().find(|e| matches!(e, MpsEvent::Gone(_))).unwrap(),
        MpsEvent::Gone(claim)
    );
    staged.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_can_not_come_back_is_seen_failing() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let claim = id("claim");
    let daemon = pid(&client.ensure(&claim, &spec(&staged, 0, json!({}))).unwrap());
    staged.faults("start-fails no CUDA-capable device is detected");
    kill(daemon);
    let failed = wait_until(&client, &claim, Duration::from_secs(2), |status| {
        matches!(status.state, DaemonState::Failed { .. }) && status.starts >= 2
    });
    assert!(failed.reason.unwrap().contains("no CUDA-capable device is detected"));
    staged.faults("");
    // Asked for, it doesn't wait for the end of its pause.
    let deadline = Instant::now() + Duration::from_secs(1);
    while client.ensure(&claim, &spec(&staged, 0, json!({}))).is_err() {
        assert!(Instant::now() < deadline);
    }
    client.stop(&claim).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn asked_for_by_many_at_once_there_is_one_of_each() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let ensure = |n: usize| {
        pid(&client
            .ensure(&id(&format!("claim-{}", n % 2)), &spec(&staged, n % 2, json!({})))
            .unwrap())
    };
    let mut pids = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|n| scope.spawn(move || ensure(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2);
    assert_eq!(staged.processes(), pids);
    let other = spec(&staged, 0, json!({"activeThreadPercentage": 10}));
    let refused = client.ensure(&id("claim-0"), &other).unwrap_err();
    assert!(matches!(refused, MpsError::Refused { kind: RefusalKind::Conflict, .. }), "{refused}");
    std::thread::scope(|scope| {
        for n in 0..6 {
            let client = &client;
            scope.spawn(move || client.stop(&id(&format!("claim-{}", n % 3))).unwrap());
        }
    });
    client.stop(&id("claim-0")).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn each_claim_has_folders_and_shm_to_itself() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let one = pid(&client.ensure(&id("one"), &spec(&staged, 0, json!({}))).unwrap());
    let two = pid(&client.ensure(&id("two"), &spec(&staged, 1, json!({}))).unwrap());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let places = staged.places(&id("one"));
    assert_eq!(mode(&places.base), 0o700);
    assert_eq!(mode(&places.pipe), 0o755);
    assert_eq!(mode(&places.shm), 0o1777);
    if staged.mounts().is_empty() {
        println!("SKIPPED: a /dev/shm for each claim needs CAP_SYS_ADMIN");
    } else {
        assert_eq!(staged.mounts().len(), 4, "shm and logs of each");
        fs::write(places.shm.join("segment"), "x").unwrap();
        let shm = |pid: u32| format!("/proc/{pid}/root/dev/shm/segment");
        assert!(fs::exists(shm(one)).unwrap(), "the daemon's /dev/shm is the claim's");
        assert!(!fs::exists(shm(two)).unwrap(), "and no other daemon's");
        let table = fs::read_to_string(format!("/proc/{two}/mountinfo")).unwrap();
        let other = places.base.display().to_string();
        let inside = |line: &&str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(&other));
        assert_eq!(table.lines().find(inside), None, "no daemon keeps another's memory");
    }
    for claim in ["one", "two"] {
        client.stop(&id(claim)).unwrap();
    }
    staged.assert_nothing_is_left();
}

#[test]
fn the_driver_may_be_installed_anywhere() {
    for layout in [Layout::Host, Layout::Gke, Layout::Bottlerocket] {
        let staged = Staged::with(layout);
        let mut settings = staged.settings();
        settings.root.host = match layout {
            Layout::Gke => "/home/kubernetes/bin/nvidia".into(),
            _ => "/".into(),
        };
        let host = staged.host_with(settings);
        let claim = id("claim");
        let multi_user = spec(&staged, 0, json!({"multiUser": true}));
        staged.client().ensure(&claim, &multi_user).unwrap();
        let libraries = staged.places(&claim).libraries;
        assert!(libraries.join("libcuda.so.1").exists(), "{layout:?}");
        assert!(!libraries.join("libc.so.6").exists());
        staged.client().stop(&claim).unwrap();
        drop(host);
        staged.assert_nothing_is_left();
    }
}

/// A stand-in for a CUDA process of this user: connected while it lives.
fn client_of(staged: &Staged, claim: &str, uid: u32, pid: u32) -> (BufReader<UnixStream>, String) {
    let mut stream = UnixStream::connect(staged.places(&id(claim)).socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    writeln!(stream, "#client {uid} {pid}").unwrap();
    let mut stream = BufReader::new(stream);
    let mut server = String::new();
    stream.read_line(&mut server).unwrap();
    (stream, server.trim().to_owned())
}

#[test]
fn clients_of_two_users_share_a_server_where_the_claim_says_so() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    client.ensure(&id("one"), &spec(&staged, 0, json!({}))).unwrap();
    client.ensure(&id("many"), &spec(&staged, 1, json!({"multiUser": true}))).unwrap();
    let (_first, server) = client_of(&staged, "one", 1000, 11);
    assert!(server.parse::<u32>().is_ok(), "{server}");
    assert_eq!(client_of(&staged, "one", 2000, 12).1, "pending");
    let (mut first, server) = client_of(&staged, "many", 1000, 21);
    let (_second, same) = client_of(&staged, "many", 2000, 22);
    assert_eq!(server, same);
    assert_eq!(staged.ask(&id("many"), &format!("get_client_list {server}")), "21\n22");

    // Its clients are lost with a daemon that is killed, and new ones are served.
    kill(pid(&client.ensure(&id("many"), &spec(&staged, 1, json!({"multiUser": true}))).unwrap()));
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    wait_until(&client, &id("many"), Duration::from_secs(1), |s| s.starts == 2 && is_ready(s));
    assert_ne!(client_of(&staged, "many", 2000, 23).1, server);
    for claim in ["one", "many"] {
        client.stop(&id(claim)).unwrap();
    }
    staged.assert_nothing_is_left();
}

#[test]
fn a_link_in_place_of_the_socket_leads_nowhere() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    client.ensure(&id("victim"), &spec(&staged, 0, json!({}))).unwrap();
    client.ensure(&id("hostile"), &spec(&staged, 1, json!({}))).unwrap();
    let socket = staged.places(&id("hostile")).socket();
    fs::remove_file(&socket).unwrap();
    symlink(staged.places(&id("victim")).socket(), &socket).unwrap();
    client.stop(&id("hostile")).unwrap();
    let victim = &client.list().unwrap()[0];
    assert_eq!((is_ready(victim), victim.starts), (true, 1));
    client.stop(&id("victim")).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_somebody_runs_by_hand_is_left_alone() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let by_hand = tempfile::tempdir().unwrap();
    let tool = |args: &str| {
        let program = staged.node.driver_root.join("usr/bin/nvidia-cuda-mps-control");
        let output = Command::new("/bin/sh")
            .args(["-c", &args.replace("CONTROL", &program.display().to_string())])
            .env("CUDA_MPS_PIPE_DIRECTORY", by_hand.path())
            .env("CUDA_MPS_LOG_DIRECTORY", by_hand.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (output.status.success(), said)
    };
    assert_eq!(tool("CONTROL -d"), (true, String::new()));
    let again = tool("CONTROL -d");
    assert!(!again.0 && again.1.contains("already running"), "{again:?}");
    client.ensure(&id("claim"), &spec(&staged, 0, json!({"activeThreadPercentage": 10}))).unwrap();
    client.stop(&id("claim")).unwrap();
    assert_eq!(tool("echo get_default_active_thread_percentage | CONTROL").1, "100.0");
    assert_eq!(tool("echo quit | CONTROL"), (true, String::new()));
    let gone = tool("echo ps | CONTROL");
    assert!(!gone.0 && gone.1.contains("Cannot find MPS control daemon"), "{gone:?}");
    staged.assert_nothing_is_left();
}
