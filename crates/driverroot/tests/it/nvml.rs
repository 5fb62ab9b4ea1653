//! Which library is loaded.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gpu_dra_driverroot::DriverRoot;
use gpu_dra_sim_data::{Layout, elf};

use crate::support::Staged;

const LAYOUTS: [Layout; 4] = [Layout::Host, Layout::GpuOperator, Layout::Gke, Layout::Bottlerocket];

#[test]
fn it_is_found_in_every_layout_and_the_layout_by_looking() {
    for layout in LAYOUTS {
        let staged = Staged::plain(layout);
        let found = staged.root().find_nvml().unwrap();
        let real = fs::canonicalize(&staged.node.library).unwrap();
        assert_eq!(fs::canonicalize(&found).unwrap(), real, "{layout:?}");
        assert!(!found.is_symlink());
        assert_eq!(DriverRoot::detect(&staged.node.host_root).unwrap().host, staged.root().host);
    }
}

/// What the chart's presets name is where the driver is found on such a node.
#[test]
fn the_presets_of_the_chart_are_where_the_driver_is() {
    let presets = include_str!("../../../../deploy/chart/presets.yaml");
    for (preset, layout) in ["host", "gpu-operator", "gke", "bottlerocket"].into_iter().zip(LAYOUTS)
    {
        let start = format!("{preset}: {{driverRoot: ");
        let line = presets.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        let root = line.split(',').next().unwrap();
        let staged = Staged::plain(layout);
        let here = staged.node.host_root.join(root.trim_start_matches('/'));
        let found = DriverRoot::new(root, here).find_nvml().unwrap();
        let real = fs::canonicalize(&staged.node.library).unwrap();
        assert_eq!(fs::canonicalize(found).unwrap(), real, "{preset}");
    }
}

/// A root with one library folder.
fn root() -> (tempfile::TempDir, DriverRoot) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("usr/lib64")).unwrap();
    let root = DriverRoot::new("/run/nvidia/driver", dir.path());
    (dir, root)
}

fn lib(dir: &tempfile::TempDir, name: &str) -> std::path::PathBuf {
    dir.path().join("usr/lib64").join(name)
}

#[test]
fn whatever_else_has_its_name_is_named_in_the_error() {
    let mut other_machine = elf::shared_object("libnvidia-ml.so.1");
    other_machine[18] ^= 0xff;
    type Make<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Make<'_>); 6] = [
        ("is a directory", &|path| fs::create_dir(path).unwrap()),
        ("is a link to nothing inside", &|path| {
            symlink("/etc/hostname-of-the-host", path).unwrap();
        }),
        ("is no shared library", &|path| fs::write(path, "").unwrap()),
        ("is no shared library", &|path| fs::write(path, "\x7fELF").unwrap()),
        ("is for another machine", &|path| fs::write(path, &other_machine).unwrap()),
        ("can't be looked at", &|path| symlink("libnvidia-ml.so.1", path).unwrap()),
    ];
    for (why, make) in cases {
        let (dir, root) = root();
        make(&lib(&dir, "libnvidia-ml.so.1"));
        let error = root.find_nvml().unwrap_err();
        assert_eq!(error.rejected.len(), 1, "{error}");
        let text = error.to_string();
        let path = "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1";
        assert!(text.contains(&format!("({path} {why}")), "{text}");
        assert!(text.contains("install the NVIDIA driver"), "{text}");
    }
}

#[test]
fn a_directory_of_that_name_does_not_hide_a_library_elsewhere() {
    let (dir, root) = root();
    fs::create_dir(lib(&dir, "libnvidia-ml.so.1")).unwrap();
    let other = dir.path().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("libnvidia-ml.so.570.1"), elf::shared_object("libnvidia-ml.so.1"))
        .unwrap();
    symlink("libnvidia-ml.so.570.1", other.join("libnvidia-ml.so.1")).unwrap();
    assert_eq!(root.find_nvml().unwrap(), other.join("libnvidia-ml.so.570.1"));
}

#[test]
fn links_are_resolved_within_the_root() {
    let (dir, root) = root();
    fs::write(lib(&dir, "libnvidia-ml.so.570.1"), elf::shared_object("libnvidia-ml.so.1")).unwrap();
    symlink("/usr/lib64/libnvidia-ml.so.570.1", lib(&dir, "libnvidia-ml.so.1")).unwrap();
    assert_eq!(root.find_nvml().unwrap(), lib(&dir, "libnvidia-ml.so.570.1"));
}

#[test]
fn no_driver_and_no_root_are_told() {
    let (_dir, root) = root();
    let error = root.find_nvml().unwrap_err();
    assert!(error.rejected.is_empty());
    assert!(
        error.to_string().starts_with("no libnvidia-ml.so.1 under driver root /run/nvidia/driver:")
    );
    let nowhere = DriverRoot::same("/nowhere/at/all").find_nvml().unwrap_err();
    assert!(nowhere.to_string().contains("can't be opened"), "{nowhere}");
    let empty = tempfile::tempdir().unwrap();
    assert!(DriverRoot::detect(empty.path()).is_err());
}
