//! Another driver of the same name, by its socket.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use gpu_dra_model::DriverName;
use gpu_dra_node::events::{Announcer, Severity};
use gpu_dra_node::neighbours::{
    Neighbour, appears, device_plugin_sockets, publisher, wait_until_alone,
};

const PAUSE: Duration = Duration::from_millis(10);

fn driver() -> DriverName {
    DriverName::new("gpu.nvidia.com").unwrap()
}

fn kubelet_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("plugins_registry")).unwrap();
    root
}

fn listen(root: &Path, name: &str) -> UnixListener {
    UnixListener::bind(root.join("plugins_registry").join(name)).unwrap()
}

#[tokio::test]
async fn only_a_socket_that_somebody_serves_is_a_neighbour() {
    let root = kubelet_root();
    assert_eq!(publisher(root.path(), &driver()).await, None);
    // NVIDIA's ComputeDomain half, another vendor's, and our own in a rolling update.
    let _others = [
        listen(root.path(), "compute-domain.nvidia.com-reg.sock"),
        listen(root.path(), "dra.net-reg.sock"),
        listen(root.path(), "gpu.nvidia.com-AbCdEfGhIjK@reg.sock"),
    ];
    assert_eq!(publisher(root.path(), &driver()).await, None);

    let incumbent = listen(root.path(), "gpu.nvidia.com-reg.sock");
    let socket = root.path().join("plugins_registry/gpu.nvidia.com-reg.sock");
    let neighbour = Neighbour::Publisher { driver: driver(), socket: socket.clone() };
    assert_eq!(publisher(root.path(), &driver()).await, Some(neighbour));
    // Killed: its socket stays.
    drop(incumbent);
    assert!(socket.exists());
    assert_eq!(publisher(root.path(), &driver()).await, None);
}

#[tokio::test]
async fn it_is_waited_for_until_the_other_has_gone_and_told_once() {
    let root = kubelet_root();
    let (announcer, mut told) = Announcer::new();
    wait_until_alone(root.path(), &driver(), PAUSE, &announcer).await;
    assert!(told.try_recv().is_err());

    let incumbent = listen(root.path(), "gpu.nvidia.com-reg.sock");
    let seen = appears(root.path(), &driver(), PAUSE).await;
    let driver = driver();
    let wait = wait_until_alone(root.path(), &driver, PAUSE, &announcer);
    let mut wait = std::pin::pin!(wait);
    assert!(tokio::time::timeout(PAUSE * 20, &mut wait).await.is_err());
    drop(incumbent);
    wait.await;
    let happening = told.try_recv().unwrap();
    assert_eq!(happening.severity, Severity::Warning);
    assert_eq!((happening.reason, happening.message), (seen.reason(), seen.to_string()));
    assert!(told.try_recv().is_err());
}

#[test]
fn sockets_of_nvidias_device_plugins_are_known_by_their_names() {
    let root = tempfile::tempdir().unwrap();
    assert!(device_plugin_sockets(root.path()).is_empty());
    let folder = root.path().join("device-plugins");
    fs::create_dir(&folder).unwrap();
    for name in ["kubelet.sock", "kubelet_internal_checkpoint", "nvidia-gpu.sock", "amd.sock"] {
        fs::write(folder.join(name), "").unwrap();
    }
    let found = device_plugin_sockets(root.path());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["nvidia-gpu.sock"]);
}
