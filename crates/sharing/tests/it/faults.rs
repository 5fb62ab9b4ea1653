//! Daemons that misbehave: who asked is told why in the daemon's own words, and nothing stays.

use std::time::Duration;

use gpu_dra_sharing::{MpsError, Patience, RefusalKind};
use serde_json::json;

use crate::staged::{Host, Staged, id, is_ready, spec, wait_until};

fn impatient(staged: &Staged) -> Host {
    let mut settings = staged.settings();
    settings.patience = Patience {
        start: Duration::from_millis(400),
        answer: Duration::from_millis(200),
        end: Duration::from_millis(500),
    };
    staged.host_with(settings)
}

#[test]
fn why_a_daemon_is_not_ready_is_said_in_its_own_words() {
    let staged = Staged::new();
    let _host = impatient(&staged);
    let client = staged.client();
    let claim = id("claim");
    let limited = spec(&staged, 0, json!({"activeThreadPercentage": 25, "memory": 512}));
    for (faults, part) in [
        ("start-fails Failed to start : invalid argument", "Failed to start : invalid argument"),
        ("start-takes 5000", "didn't answer within 0.4 s"),
        ("hangs get_default_active_thread_percentage", "didn't answer within 0.4 s"),
        ("refuses get_default_active_thread_percentage not now", "not now"),
        ("refuses set_default_active_thread_percentage Invalid percentage", "Invalid percentage"),
        ("refuses set_default_device_pinned_mem_limit Invalid device", "Invalid device"),
        ("hangs set_default_device_pinned_mem_limit", "is not answered"),
    ] {
        staged.faults(faults);
        let error = client.ensure(&claim, &limited).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(part) && text.len() < 250, "{faults}: {text}");
        assert!(matches!(error, MpsError::Refused { kind: RefusalKind::NotReady, .. }));
        client.stop(&claim).unwrap();
        staged.assert_nothing_is_left();
    }
    staged.faults("start-takes 100");
    client.ensure(&claim, &limited).unwrap();
    client.stop(&claim).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn a_percentage_of_zero_is_the_daemons_to_refuse() {
    let staged = Staged::new();
    let _host = staged.host();
    let zero = spec(&staged, 0, json!({"activeThreadPercentage": 0}));
    let error = staged.client().ensure(&id("claim"), &zero).unwrap_err();
    assert!(error.to_string().contains("Invalid percentage 0"), "{error}");
    staged.client().stop(&id("claim")).unwrap();
}

#[test]
fn a_daemon_that_does_not_quit_is_killed() {
    let staged = Staged::new();
    let _host = impatient(&staged);
    let client = staged.client();
    for faults in ["hangs quit", "refuses quit not now"] {
        client.ensure(&id("claim"), &spec(&staged, 0, json!({}))).unwrap();
        staged.ask(&id("claim"), "start_server -uid 0");
        staged.faults(faults);
        client.stop(&id("claim")).unwrap();
        staged.assert_nothing_is_left();
        staged.faults("");
    }
}

#[test]
fn a_daemon_that_dies_again_and_again_is_started_slower_and_slower() {
    let staged = Staged::new();
    let _host = staged.host();
    let client = staged.client();
    let claim = id("claim");
    staged.faults("dies-after 20");
    client.ensure(&claim, &spec(&staged, 0, json!({}))).unwrap();
    let third = wait_until(&client, &claim, Duration::from_secs(5), |status| status.starts == 3);
    assert!(third.reason.unwrap().contains("signal 6"));
    // 0, 0.5 and 1 s lie between the starts, so within this time there is no fifth.
    std::thread::sleep(Duration::from_millis(1500));
    let starts = client.list().unwrap()[0].starts;
    assert!((3..=4).contains(&starts), "{starts}");
    staged.faults("");
    wait_until(&client, &claim, Duration::from_secs(5), is_ready);
    client.stop(&claim).unwrap();
    staged.assert_nothing_is_left();
}

#[test]
fn without_a_driver_the_reason_names_its_root() {
    let staged = Staged::new();
    let _host = staged.host();
    let program = staged.node.driver_root.join("usr/bin/nvidia-cuda-mps-control");
    std::fs::remove_file(program).unwrap();
    let error = staged.client().ensure(&id("claim"), &spec(&staged, 0, json!({}))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("nvidia-cuda-mps-control under /run/nvidia/driver"), "{text}");
    staged.client().stop(&id("claim")).unwrap();
    staged.assert_nothing_is_left();
}
