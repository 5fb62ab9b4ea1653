//! The host itself ends, by a signal or at any boundary, and another one goes on.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use gpu_dra_host::Boundary;
use gpu_dra_sharing::{DaemonState, MpsEvent, run};
use serde_json::json;

use crate::staged::{Staged, id, is_ready, kill, pid, settings, spec, wait_until};

/// The process of a host: runs until its standard input is closed, or it is killed.
#[test]
#[ignore = "is run by the other tests as a process of its own"]
fn host_process() {
    let var = |name| std::env::var_os(name).unwrap();
    let die_at: u64 = var("MPS_TEST_DIE_AT").to_str().unwrap().parse().unwrap();
    let boundary = if die_at == 0 { Boundary::default() } else { Boundary::die_at(die_at) };
    let dir = PathBuf::from(var("MPS_TEST_DIR"));
    let settings = settings(&dir, &PathBuf::from(var("MPS_TEST_ROOT")), boundary);
    run(settings, || drop(std::io::stdin().read_to_end(&mut Vec::new()))).unwrap();
}

fn next(events: &mpsc::Receiver<MpsEvent>) -> MpsEvent {
    events.recv_timeout(Duration::from_secs(10)).unwrap()
}

#[test]
fn the_next_life_adopts_daemons_and_loses_no_client() {
    let staged = Staged::new();
    let client = staged.client();
    let (told, events) = mpsc::channel();
    let _follow = client.follow(move |event| drop(told.send(event))).unwrap();
    assert!(matches!(next(&events), MpsEvent::Away(_)));

    let mut host = staged.host_process(0);
    assert_eq!(next(&events), MpsEvent::Daemons(vec![]));
    let before = client
        .ensure(&id("claim"), &spec(&staged, 0, json!({"activeThreadPercentage": 30})))
        .unwrap();
    staged.ask(&id("claim"), "start_server -uid 0");
    let processes = staged.processes();
    assert_eq!(processes.len(), 2);
    host.kill().unwrap();
    host.wait().unwrap();
    assert_eq!(staged.processes(), processes, "daemon and server outlive the host");

    let mut host = staged.host_process(0);
    staged.wait_for_host(|| true);
    let after = wait_until(&client, &id("claim"), Duration::from_secs(2), is_ready);
    assert_eq!((pid(&after), after.starts), (pid(&before), 1), "adopted");
    assert_eq!(staged.processes(), processes, "no client was lost");
    while !matches!(next(&events), MpsEvent::Away(_)) {}
    assert!(matches!(next(&events), MpsEvent::Daemons(all) if all.len() == 1));

    // An adopted daemon is watched like any other.
    kill(pid(&after));
    let again =
        wait_until(&client, &id("claim"), Duration::from_secs(1), |s| s.starts == 2 && is_ready(s));
    assert_eq!(staged.ask(&id("claim"), "get_default_active_thread_percentage"), "30.0");
    assert_ne!(pid(&again), pid(&before));
    client.stop(&id("claim")).unwrap();
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success());
    staged.assert_nothing_is_left();
}

#[test]
fn host_and_daemons_killed_the_journal_is_followed_and_the_loss_is_told() {
    let staged = Staged::new();
    let client = staged.client();
    let mut host = staged.host_process(0);
    staged.wait_for_host(|| true);
    client.ensure(&id("one"), &spec(&staged, 0, json!({"memory": 2048}))).unwrap();
    client.ensure(&id("two"), &spec(&staged, 1, json!({}))).unwrap();
    host.kill().unwrap();
    host.wait().unwrap();
    staged.processes().into_iter().for_each(kill);
    let _host = staged.host();
    for claim in ["one", "two"] {
        let status = wait_until(&client, &id(claim), Duration::from_secs(2), is_ready);
        assert_eq!(status.starts, 2, "{claim}: its clients were lost");
    }
    assert_eq!(staged.ask(&id("one"), "get_default_device_pinned_mem_limit 0"), "2G");
    client.stop(&id("one")).unwrap();
    client.stop(&id("two")).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn the_host_dies_at_each_boundary_and_the_next_one_converges() {
    let staged = Staged::new();
    let client = staged.client();
    let claim = id("claim");
    let limited = spec(&staged, 0, json!({"activeThreadPercentage": 50}));
    let mut points = 0;
    for die_at in 1.. {
        let mut host = staged.host_process(die_at);
        staged.wait_for_host_or_end(&mut host);
        let ensured = client.ensure(&claim, &limited);
        let stopped = ensured.is_ok().then(|| client.stop(&claim));
        if let Some(Ok(())) = stopped {
            drop(host.stdin.take());
            assert!(host.wait().unwrap().success());
            break;
        }
        host.wait().unwrap();
        points += 1;
        // Whatever it was in the middle of, the next one ends it and begins again.
        let next = staged.host();
        client.ensure(&claim, &limited).unwrap();
        assert_eq!(staged.processes().len(), 1);
        client.stop(&claim).unwrap();
        drop(next);
        staged.assert_nothing_is_left();
    }
    println!("{points} boundaries");
    assert!(points >= 16, "only {points} boundaries: the host doesn't die");
    staged.assert_nothing_is_left();
}

#[test]
fn a_lost_record_leaves_the_daemon_to_who_asks_for_it() {
    let staged = Staged::new();
    let client = staged.client();
    let host = staged.host();
    let plain = spec(&staged, 0, json!({}));
    let daemon = pid(&client.ensure(&id("one"), &plain).unwrap());
    client.ensure(&id("two"), &spec(&staged, 1, json!({}))).unwrap();
    drop(host);
    fs::write(staged.state_dir().join("one.json"), "{").unwrap();
    fs::remove_file(staged.state_dir().join("two.json")).unwrap();
    let _host = staged.host();
    let all = client.list().unwrap();
    assert!(all.iter().all(|status| status.state == DaemonState::Unasked), "{all:?}");
    assert_eq!(staged.processes().len(), 2, "nothing is ended that may be in use");
    assert_eq!(pid(&client.ensure(&id("one"), &plain).unwrap()), daemon, "adopted");
    client.stop(&id("two")).unwrap();
    client.stop(&id("one")).unwrap();
    fs::remove_file(staged.state_dir().join("one.json.bad")).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn a_process_of_a_stranger_is_left_alone() {
    let staged = Staged::new();
    let client = staged.client();
    let host = staged.host();
    let daemon = pid(&client.ensure(&id("claim"), &spec(&staged, 0, json!({}))).unwrap());
    let mut stranger = std::process::Command::new("/bin/sleep")
        .arg("60")
        .env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
        .spawn()
        .unwrap();
    // A pid file is worth nothing.
    let pid_file = staged.places(&id("claim")).pipe.join("nvidia-cuda-mps-control.pid");
    fs::write(pid_file, stranger.id().to_string()).unwrap();
    drop(host);
    kill(daemon);
    let _host = staged.host();
    wait_until(&client, &id("claim"), Duration::from_secs(2), is_ready);
    client.stop(&id("claim")).unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    staged.assert_nothing_is_left();
}
