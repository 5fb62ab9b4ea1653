//! Which of the driver's files a container gets.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use gpu_dra_driverroot::{DriverFiles, DriverRoot, FilesError};
use gpu_dra_sim_data::{Layout, elf};

use crate::support::{Staged, VERSION};

fn collect(staged: &Staged) -> DriverFiles {
    DriverFiles::collect(&staged.root(), VERSION).unwrap()
}

#[test]
fn every_layout_gives_the_same_files_where_its_containers_want_them() {
    let debian = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let bottlerocket =
        format!("/{}-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla", std::env::consts::ARCH);
    for (layout, libraries, programs) in [
        (Layout::Host, debian.as_str(), "/usr/bin"),
        (Layout::GpuOperator, "/usr/lib64", "/usr/bin"),
        (Layout::Gke, "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"),
        (Layout::Bottlerocket, bottlerocket.as_str(), "/usr/bin"),
    ] {
        let staged = Staged::plain(layout);
        let files = collect(&staged);
        let container_paths: Vec<_> =
            files.libraries.iter().map(|library| library.file.container_path.as_str()).collect();
        assert!(container_paths.contains(&format!("{libraries}/libcuda.so.{VERSION}").as_str()));
        assert!(
            container_paths
                .contains(&format!("{libraries}/vdpau/libvdpau_nvidia.so.{VERSION}").as_str())
        );
        // 29 and NVML with the driver's version, 4 with their own; links aren't files.
        assert_eq!(files.libraries.len(), 34, "{layout:?} {container_paths:?}");
        assert!(files.libraries.iter().all(|library| library.soname.is_some()));
        for file in files.libraries.iter().map(|l| &l.file).chain(&files.programs) {
            let inside = Path::new(&file.host_path).strip_prefix("/").unwrap();
            assert!(staged.node.host_root.join(inside).is_file(), "{}", file.host_path);
        }
        let smi = format!("{programs}/nvidia-smi");
        assert!(files.programs.iter().any(|file| file.container_path == smi), "{layout:?}");
        // nvidia-modprobe is not a container's business.
        assert_eq!(files.programs.len(), 5);
        let firmware: Vec<_> = files.firmware.iter().map(|f| f.container_path.as_str()).collect();
        let folder = format!("/lib/firmware/nvidia/{VERSION}");
        assert_eq!(firmware, ["gsp_ga10x.bin", "gsp_tu10x.bin"].map(|f| format!("{folder}/{f}")));
        let configs: Vec<_> = files.configs.iter().map(|f| f.container_path.as_str()).collect();
        assert_eq!(
            configs,
            [
                "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
                "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
                "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
                "/usr/share/nvidia/nvoptix.bin",
                "/etc/OpenCL/vendors/nvidia.icd",
                "/etc/vulkan/icd.d/nvidia_icd.json",
                "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
            ],
            "{layout:?}"
        );
        assert!(files.sockets.is_empty());
    }
}

#[test]
fn sockets_of_daemons_are_found_when_they_are_there() {
    let staged = Staged::plain(Layout::GpuOperator);
    let folder = staged.node.driver_root.join("run/nvidia-persistenced");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("socket"), "not a socket").unwrap();
    assert!(collect(&staged).sockets.is_empty());
    fs::remove_file(folder.join("socket")).unwrap();
    let _listener = UnixListener::bind(folder.join("socket")).unwrap();
    let sockets = collect(&staged).sockets;
    assert_eq!(sockets.len(), 1);
    assert_eq!(sockets[0].container_path, "/run/nvidia-persistenced/socket");
    assert_eq!(sockets[0].host_path, "/run/nvidia/driver/run/nvidia-persistenced/socket");
}

fn root_with(files: &[(&str, &[u8])]) -> (tempfile::TempDir, DriverRoot) {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let root = DriverRoot::new("/run/nvidia/driver", dir.path());
    (dir, root)
}

fn names(files: &DriverFiles) -> Vec<&str> {
    files
        .libraries
        .iter()
        .map(|library| library.file.container_path.rsplit('/').next().unwrap())
        .collect()
}

#[test]
fn only_native_libraries_of_the_version_count() {
    let library = elf::shared_object("libx.so.1");
    let mut foreign = library.clone();
    foreign[4] = 1;
    let (_dir, root) = root_with(&[
        ("usr/lib64/libcuda.so.550.1", &library),
        ("usr/lib64/libcuda.so.550.12", &library),
        ("usr/lib64/libnvidia-tls.so.550.1", &foreign),
        ("usr/lib64/libnvidia-text.so.550.1", b"INPUT(x)"),
        ("usr/lib64/libnvidia-nvvm.so.4.0.0", &library),
        ("usr/lib64/libGL.so.550.1", &library),
        ("usr/lib64/libc.so.6", &library),
        // No libcuda and no NVML here: another package's folder.
        ("usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.550.1", &library),
    ]);
    let files = DriverFiles::collect(&root, "550.1").unwrap();
    assert_eq!(names(&files), ["libcuda.so.550.1", "libnvidia-nvvm.so.4.0.0"]);
}

#[test]
fn one_folder_under_two_names_is_taken_once() {
    let library = elf::shared_object("libcuda.so.1");
    let (dir, root) = root_with(&[("usr/lib64/libcuda.so.550.1", &library)]);
    symlink("usr/lib64", dir.path().join("lib64")).unwrap();
    symlink("/usr/lib64", dir.path().join("usr/lib")).unwrap();
    let files = DriverFiles::collect(&root, "550.1").unwrap();
    assert_eq!(names(&files), ["libcuda.so.550.1"]);
    assert_eq!(files.libraries[0].file.container_path, "/usr/lib64/libcuda.so.550.1");
}

/// An absolute link in a driver container means a file of that container, and the host
/// must be told the path without the link.
#[test]
fn host_paths_have_no_links() {
    let library = elf::shared_object("libcuda.so.1");
    let (dir, root) = root_with(&[("opt/real/libcuda.so.550.1", &library)]);
    symlink("opt/real", dir.path().join("usr-lib64")).unwrap();
    fs::create_dir(dir.path().join("usr")).unwrap();
    symlink("/usr-lib64", dir.path().join("usr/lib64")).unwrap();
    let files = DriverFiles::collect(&root, "550.1").unwrap();
    let file = &files.libraries[0].file;
    assert_eq!(file.host_path, "/run/nvidia/driver/opt/real/libcuda.so.550.1");
    assert_eq!(file.container_path, "/usr/lib64/libcuda.so.550.1");
}

#[test]
fn a_driver_of_another_version_is_named() {
    let library = elf::shared_object("libnvidia-ml.so.1");
    let (_dir, root) = root_with(&[("usr/lib64/libnvidia-ml.so.580.2", &library)]);
    let error = DriverFiles::collect(&root, "550.1").unwrap_err();
    assert!(matches!(&error, FilesError::NoLibraries { found, .. } if *found == ["580.2"]));
    let text = error.to_string();
    assert!(text.contains("550.1") && text.contains("(found 580.2)"), "{text}");
    assert!(text.len() < 200, "{text}");
    let nowhere = DriverFiles::collect(&DriverRoot::same("/nowhere"), "550.1").unwrap_err();
    assert!(matches!(nowhere, FilesError::Root { .. }));
}
