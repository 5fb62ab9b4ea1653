//! How a driver gets to its kubelet, and what it knows about it.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_kubelet::client::{DraApi, Event, RegisterError, register};
use gpu_dra_kubelet::proto::registration::RegistrationStatus;
use gpu_dra_kubelet::proto::registration::registration_client::RegistrationClient;
use gpu_dra_kubelet::{RegistrationState, Server, SocketError, Stopped};
use tokio::time::Instant;
use tonic::transport::Endpoint;

use crate::support::{Claims, Root, claim, registered, soon, until_registered};

const UID_A: &str = "aaaaaaaa-2b7e-4c55-9d1f-6a0d6b1e4c01";
const UID_B: &str = "bbbbbbbb-2b7e-4c55-9d1f-6a0d6b1e4c01";
const UID_C: &str = "cccccccc-2b7e-4c55-9d1f-6a0d6b1e4c01";

#[tokio::test]
async fn registers_with_the_newest_version_that_the_kubelet_knows() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let state = server.registration();
    assert!(matches!(*state.borrow(), RegistrationState::NotCalled { .. }));

    let plugin = registered(&mut root.kubelet()).await;
    until_registered(&server).await;
    assert_eq!(plugin.driver().as_str(), "gpu.nvidia.com");
    assert_eq!(plugin.endpoint(), root.paths(None).service());
    assert_eq!(plugin.api(), DraApi::V1);
    assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);

    let old = registered(&mut root.kubelet_with(&[DraApi::V1Beta1])).await;
    assert_eq!(old.api(), DraApi::V1Beta1);
}

#[tokio::test]
async fn registers_again_after_a_kubelet_restart() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    for _ in 0..3 {
        let plugin = registered(&mut root.kubelet()).await;
        assert!(server.registration().borrow().is_registered());
        assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn registers_again_after_a_plugin_restart_and_the_old_channel_works_on() {
    let root = Root::new();
    let mut kubelet = root.kubelet();
    let server = root.start(&Claims::quick()).await;
    let plugin = registered(&mut kubelet).await;
    assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);
    assert_eq!(soon(server.stop(Duration::from_secs(5))).await, Stopped::Drained);
    assert!(matches!(soon(kubelet.next()).await, Event::Gone { endpoint, .. }
        if endpoint == plugin.endpoint()));
    assert!(plugin.prepare(&[claim(1)]).await.is_err(), "nobody is there");

    let server = root.start(&Claims::quick()).await;
    registered(&mut kubelet).await;
    until_registered(&server).await;
    assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1, "service reconnect");
}

#[tokio::test]
async fn a_restart_too_quick_to_be_seen_missing_is_a_new_registration() {
    let root = Root::new();
    let mut kubelet = root.kubelet();
    let server = root.start(&Claims::quick()).await;
    registered(&mut kubelet).await;
    // The new socket may get the old one's inode number: a file system's clock tells them
    // apart, and it ticks every 10 ms at worst.
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.stop(Duration::from_secs(5)).await;
    let server = root.start(&Claims::quick()).await;
    assert!(matches!(soon(kubelet.next()).await, Event::Gone { .. }));
    registered(&mut kubelet).await;
    until_registered(&server).await;
}

/// What kill -9 leaves: two socket files on which nobody listens.
#[tokio::test]
async fn a_new_instance_takes_over_the_stale_sockets_of_a_killed_one() {
    let root = Root::new();
    let paths = root.paths(None);
    std::fs::create_dir_all(paths.service().parent().unwrap()).unwrap();
    for path in [paths.registration(), paths.service()] {
        drop(UnixListener::bind(path).unwrap());
        assert!(path.exists());
    }
    let mut kubelet = root.kubelet();
    assert!(matches!(
        soon(kubelet.next()).await,
        Event::Failed { error: RegisterError::GetInfo { .. }, retry_in }
            if retry_in == Duration::from_millis(500)
    ));
    let server = root.start(&Claims::quick()).await;
    registered(&mut kubelet).await;
    until_registered(&server).await;
}

#[tokio::test]
async fn a_refusal_is_kept_in_the_kubelets_words_until_it_thinks_better() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let error = soon(root.kubelet_with(&[]).next()).await;
    assert!(matches!(&error, Event::Failed { error: RegisterError::Refused { .. }, .. }));
    let state = server.registration().borrow().clone();
    assert!(
        matches!(&state, RegistrationState::Refused { error }
            if error.contains("none of services supported")),
        "{state:?}"
    );
    let sentence = state.sentence(&root.paths(None), Instant::now());
    assert!(sentence.contains("refused gpu.nvidia.com"), "{sentence}");

    registered(&mut root.kubelet()).await;
    until_registered(&server).await;
}

/// Field report K04: a kubelet without DRA.
#[tokio::test]
async fn a_kubelet_without_dra_is_named_as_the_reason() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let socket = root.paths(None).registration().to_str().unwrap().to_owned();
    let channel = Endpoint::from_shared(format!("unix://{socket}")).unwrap().connect_lazy();
    let error = format!("no handler registered for plugin type: DRAPlugin at socket {socket}");
    RegistrationClient::new(channel)
        .notify_registration_status(RegistrationStatus { plugin_registered: false, error })
        .await
        .unwrap();
    let sentence = server.registration().borrow().sentence(&root.paths(None), Instant::now());
    assert!(sentence.contains("no handler registered"), "{sentence}");
    assert!(sentence.contains("DynamicResourceAllocation"), "{sentence}");
}

#[tokio::test]
async fn a_second_registration_socket_for_one_endpoint_is_refused() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let mut kubelet = root.kubelet();
    registered(&mut kubelet).await;
    let socket = root.paths(None).registration().to_path_buf();
    std::fs::hard_link(&socket, socket.with_file_name("other@reg.sock")).unwrap();
    let event = soon(kubelet.next()).await;
    assert!(
        matches!(&event, Event::Failed { error: RegisterError::Refused { reason, .. }, .. }
            if reason.contains("already registered")),
        "{event:?}"
    );
    drop(server);
}

#[tokio::test]
async fn two_instances_live_side_by_side() {
    let root = Root::new();
    let [old, new] = [Claims::quick(), Claims::quick()];
    let mut kubelet = root.kubelet();
    let old_server = Server::start(root.paths(Some(UID_A)), Arc::clone(&old)).await.unwrap();
    let old_plugin = registered(&mut kubelet).await;
    let new_server = Server::start(root.paths(Some(UID_B)), Arc::clone(&new)).await.unwrap();
    let new_plugin = registered(&mut kubelet).await;
    assert_ne!(old_plugin.endpoint(), new_plugin.endpoint());

    old_plugin.prepare(&[claim(1)]).await.unwrap();
    new_plugin.prepare(&[claim(2)]).await.unwrap();
    old.done(1).await;
    new.done(1).await;

    soon(old_server.stop(Duration::from_secs(5))).await;
    assert!(matches!(soon(kubelet.next()).await, Event::Gone { endpoint, .. }
        if endpoint == old_plugin.endpoint()));
    new_plugin.unprepare(&[claim(2)]).await.unwrap();
    assert!(new_server.registration().borrow().is_registered());
}

#[tokio::test]
async fn only_dead_sockets_of_our_own_names_are_swept() {
    let root = Root::new();
    let live = Server::start(root.paths(Some(UID_A)), Claims::quick()).await.unwrap();
    let dead = root.paths(Some(UID_B));
    let registry = root.registry();
    let foreign = [
        registry.join("gpu.nvidia.com-reg.sock"),
        registry.join("compute-domain.nvidia.com@reg.sock"),
        dead.service().with_file_name("mps.sock"),
    ];
    for path in foreign.iter().map(|p| p.as_path()).chain([dead.registration(), dead.service()]) {
        drop(UnixListener::bind(path).unwrap());
    }
    let file = root.paths(Some(UID_C)).registration().to_path_buf();
    std::fs::write(&file, "not a socket").unwrap();

    let server = root.start(&Claims::quick()).await;
    assert!(!dead.registration().exists() && !dead.service().exists());
    for kept in foreign.iter().chain([&file]) {
        assert!(kept.exists(), "{}", kept.display());
    }
    let paths = root.paths(Some(UID_A));
    assert!(paths.registration().exists() && paths.service().exists());
    let plugin = register(paths.registration(), &DraApi::ALL, |_| Ok(())).await.unwrap();
    assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);
    drop((live, server));
}

#[tokio::test]
async fn a_name_that_a_live_instance_has_is_left_to_it() {
    let root = Root::new();
    let first = root.start(&Claims::quick()).await;
    let error = Server::start(root.paths(None), Claims::quick()).await.unwrap_err();
    assert!(matches!(&error, SocketError::InUse(_)), "{error}");
    assert!(error.to_string().contains("pod UID"), "{error}");
    registered(&mut root.kubelet()).await;
    until_registered(&first).await;
}

#[tokio::test]
async fn a_wrong_kubelet_root_is_told_at_start() {
    let root = Root::new();
    std::fs::remove_dir(root.registry()).unwrap();
    let error = Server::start(root.paths(None), Claims::quick()).await.unwrap_err();
    assert!(matches!(&error, SocketError::NoDirectory(_)), "{error}");
    assert!(error.to_string().contains("kubelet root"), "{error}");
    assert!(!root.paths(None).service().exists(), "nothing is left behind");
}

#[tokio::test]
async fn names_that_begin_with_a_dot_and_files_are_not_plugins() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let socket = root.paths(None).registration().to_path_buf();
    std::fs::write(socket.with_file_name("file.sock"), "").unwrap();
    let below = root.registry().join("below");
    std::fs::create_dir(&below).unwrap();
    std::fs::rename(&socket, below.join(".hidden@reg.sock")).unwrap();
    let mut kubelet = root.kubelet();
    let early = tokio::time::timeout(Duration::from_millis(100), kubelet.next()).await;
    assert!(early.is_err(), "{early:?}");
    std::fs::rename(below.join(".hidden@reg.sock"), below.join("shown@reg.sock")).unwrap();
    registered(&mut kubelet).await;
    until_registered(&server).await;
}
