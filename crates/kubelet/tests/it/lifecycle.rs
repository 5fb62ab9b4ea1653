//! From start to stop: modes, order, drain.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use gpu_dra_kubelet::client::DraApi;
use gpu_dra_kubelet::{Server, Stopped};
use tokio::net::UnixStream;

use crate::support::{Claims, LONG, Root, claim, registered, soon};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn sockets_and_directory_are_for_root_alone() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let paths = root.paths(None);
    assert_eq!(mode(paths.service().parent().unwrap()), 0o750);
    assert_eq!(mode(paths.service()), 0o600);
    assert_eq!(mode(paths.registration()), 0o600);
    drop(server);
}

#[tokio::test]
async fn the_registration_socket_goes_first_and_a_running_call_is_answered() {
    let root = Root::new();
    let claims = Claims::gated();
    let server = root.start(&claims).await;
    let plugin = registered(&mut root.kubelet()).await;
    let call = tokio::spawn(async move { plugin.prepare(&[claim(1)]).await });
    claims.begun(1).await;

    let stop = tokio::spawn(server.stop(LONG));
    let paths = root.paths(None);
    soon(async {
        while paths.registration().exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(paths.service().exists(), "the call is still running");
    assert!(!stop.is_finished());
    claims.gate.add_permits(1);
    assert_eq!(soon(call).await.unwrap().unwrap().len(), 1);
    assert_eq!(soon(stop).await.unwrap(), Stopped::Drained);
    assert!(!paths.service().exists());
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_left_behind() {
    let root = Root::new();
    let claims = Claims::gated();
    let server = root.start(&claims).await;
    let plugin = root.dial(DraApi::V1);
    let call = tokio::spawn(async move { plugin.prepare(&[claim(1)]).await });
    claims.begun(1).await;
    let stopped = soon(server.stop(Duration::from_millis(50))).await;
    assert_eq!(stopped, Stopped::StillRunning(1));
    assert!(!root.paths(None).service().exists());
    // It's not broken off: what it does next is the claim service's to journal.
    claims.gate.add_permits(1);
    claims.done(1).await;
    call.abort();
}

#[tokio::test]
async fn a_client_that_does_not_speak_http_cannot_hold_the_server() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let mute = UnixStream::connect(root.paths(None).service()).await.unwrap();
    let start = Instant::now();
    assert_eq!(soon(server.stop(LONG)).await, Stopped::Drained);
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    drop(mute);
}

#[tokio::test]
async fn the_sockets_of_a_successor_are_not_unlinked() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let paths = root.paths(None);
    let mut successors = Vec::new();
    for path in [paths.registration(), paths.service()] {
        // Renamed, not removed: the inode number must not be used again.
        std::fs::rename(path, path.with_extension("old")).unwrap();
        successors.push(UnixListener::bind(path).unwrap());
    }
    soon(server.stop(LONG)).await;
    assert!(paths.registration().exists() && paths.service().exists());
}

#[tokio::test]
async fn a_started_server_does_not_fail_by_itself() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let failed = tokio::time::timeout(Duration::from_millis(100), server.failed()).await;
    assert!(failed.is_err());
    assert_eq!(soon(server.stop(LONG)).await, Stopped::Drained, "and can still be stopped");
}

/// If the second socket can't be made, the first is not left behind.
#[tokio::test]
async fn a_failed_start_leaves_no_socket() {
    let root = Root::new();
    let paths = root.paths(None);
    std::fs::create_dir(paths.registration()).unwrap();
    let error = Server::start(paths.clone(), Claims::quick()).await.unwrap_err();
    assert!(error.to_string().contains("cannot listen on"), "{error}");
    assert!(!paths.service().exists());
}
