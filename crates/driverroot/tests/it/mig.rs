//! The nodes of MIG devices: there, late, wrong, made, simulated; and what becomes of them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gpu_dra_cdi::{SpecDevice, claim_spec};
use gpu_dra_driverroot::{
    CharNode, CommonNodes, DeviceNodes, DriverFiles, DriverRoot, MigNodes, Node, NodeError,
    NodeFinder, common_edits, mig_edits,
};
use gpu_dra_model::ids::{
    ClaimUid, ComputeInstanceId, DeviceName, DriverName, GpuInstanceId, Minor,
};
use gpu_dra_sim_data::{self as sim, Layout};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::support::{Staged, VERSION, is_root};

const GPU: Minor = Minor(1);

/// Cuts a 3g instance with one compute instance out of the staged node's second GPU.
fn cut(staged: &Staged) -> (GpuInstanceId, ComputeInstanceId) {
    let ids = staged.node.state_dir.update(|node, state| {
        let table = node.gpus[1].model.mig.as_ref().unwrap();
        let gpu = &mut state.gpus[1];
        gpu.set_mig(table, true);
        let instance = gpu.create_gpu_instance(table, 9, None).unwrap();
        let compute = gpu.create_compute_instance(table, instance, 0, None).unwrap();
        Ok::<_, sim::StateError>((GpuInstanceId(instance), ComputeInstanceId(compute)))
    });
    ids.unwrap()
}

fn kinds(found: &MigNodes) -> Vec<String> {
    let kind = |node: &Node| match node {
        Node::Char(node) => {
            format!("{} {}:{} {:o}", node.path, node.major, node.minor, node.mode)
        }
        Node::PlainFile(file) => format!("{} plain", file.container_path),
    };
    found.nodes.iter().map(kind).collect()
}

/// The number of the instance of [`cut`] by the driver's formula: GPU 1, GPU instance 1.
const INSTANCE: u32 = 3 + 135 + 9;

fn all_by_number() -> [String; 3] {
    [
        "/dev/nvidia1 195:1 666".to_owned(),
        format!("/dev/nvidia-caps/nvidia-cap{INSTANCE} 236:{INSTANCE} 444"),
        format!("/dev/nvidia-caps/nvidia-cap{} 236:{} 444", INSTANCE + 1, INSTANCE + 1),
    ]
}

#[test]
fn plain_files_stand_for_a_mig_device() {
    for layout in [Layout::Host, Layout::GpuOperator] {
        let staged = Staged::plain(layout);
        let (instance, compute) = cut(&staged);
        let found = staged.finder(DeviceNodes::AllowPlainFiles).mig(GPU, instance, compute);
        let found = found.unwrap();
        assert!(found.late.is_empty());
        assert_eq!(
            kinds(&found),
            [
                "/dev/nvidia1 plain".to_owned(),
                format!("/dev/nvidia-caps/nvidia-cap{INSTANCE} plain"),
                format!("/dev/nvidia-caps/nvidia-cap{} plain", INSTANCE + 1),
            ]
        );
        assert_eq!(mig_edits(&found).mounts.len(), 3);
        let error = staged.finder(DeviceNodes::MustExist).mig(GPU, instance, compute);
        assert!(matches!(error.unwrap_err(), NodeError::NotADevice { .. }));
    }
}

/// The nodes of an instance come when udev gets to it: what the driver says counts.
#[test]
fn late_nodes_are_named_by_number_or_made() {
    if !is_root("late_nodes_are_named_by_number_or_made") {
        return;
    }
    let staged = Staged::new(Layout::GpuOperator, sim::DeviceNodes::Real);
    let (instance, compute) = cut(&staged);
    let finder = staged.finder(DeviceNodes::MustExist);
    let there = finder.mig(GPU, instance, compute).unwrap();
    assert_eq!(kinds(&there), all_by_number());
    assert!(there.late.is_empty());

    let caps = staged.node.dev_root.join("dev/nvidia-caps");
    fs::remove_dir_all(&caps).unwrap();
    let late = finder.mig(GPU, instance, compute).unwrap();
    assert_eq!(late.nodes, there.nodes, "a container gets the same, late or not");
    let path = format!("/dev/nvidia-caps/nvidia-cap{INSTANCE}");
    assert_eq!(late.late, [path, format!("/dev/nvidia-caps/nvidia-cap{}", INSTANCE + 1)]);
    assert!(!caps.exists());

    let made = staged.finder(DeviceNodes::CreateMissing).mig(GPU, instance, compute).unwrap();
    assert_eq!(made, there);
    assert_eq!(fs::metadata(&caps).unwrap().permissions().mode() & 0o777, 0o755);
    let node = fs::metadata(caps.join(format!("nvidia-cap{INSTANCE}"))).unwrap();
    assert!(node.file_type().is_char_device());
    assert_eq!((node.uid(), node.gid(), node.mode() & 0o777), (0, 0, 0o444));
    assert!(!caps.join("nvidia-cap1").exists(), "only what is asked for");
}

#[test]
fn a_node_of_another_instance_is_refused() {
    if !is_root("a_node_of_another_instance_is_refused") {
        return;
    }
    let staged = Staged::new(Layout::Host, sim::DeviceNodes::Real);
    let (instance, compute) = cut(&staged);
    let caps = staged.node.dev_root.join("dev/nvidia-caps");
    let node = caps.join(format!("nvidia-cap{}", INSTANCE + 1));
    fs::remove_file(&node).unwrap();
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::RUSR, makedev(236, 1)).unwrap();
    for policy in [DeviceNodes::MustExist, DeviceNodes::CreateMissing] {
        let error = staged.finder(policy).mig(GPU, instance, compute).unwrap_err();
        assert!(
            matches!(error, NodeError::WrongNumbers { found: (236, 1), wanted: (236, 148), .. }),
            "{error}"
        );
    }
}

/// A hand-written node whose numbers follow no formula, with plain files for the rest.
fn by_hand() -> (tempfile::TempDir, NodeFinder, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("dev/nvidia4", "");
    write("proc/devices", "Character devices:\n195 nvidia\n511 nvidia-caps\n\nBlock devices:\n");
    let folder = "proc/driver/nvidia/capabilities/gpu4/mig/gi2";
    write(
        &format!("{folder}/access"),
        "DeviceFileMinor: 9001\nDeviceFileMode: 256\nDeviceFileModify: 0\n",
    );
    write(&format!("{folder}/ci1/access"), "DeviceFileMinor: 77\nDeviceFileMode: 292\n");
    let mut finder = NodeFinder::new(DriverRoot::same(dir.path()), DeviceNodes::AllowPlainFiles);
    finder.root.host = PathBuf::from("/");
    finder.proc = dir.path().join("proc");
    let instance = dir.path().join(folder);
    (dir, finder, instance)
}

fn ask(finder: &NodeFinder) -> Result<MigNodes, NodeError> {
    finder.mig(Minor(4), GpuInstanceId(2), ComputeInstanceId(1))
}

#[test]
fn numbers_are_the_drivers_not_a_formulas() {
    let (_dir, finder, _) = by_hand();
    assert_eq!(
        kinds(&ask(&finder).unwrap()),
        [
            "/dev/nvidia4 plain",
            "/dev/nvidia-caps/nvidia-cap9001 511:9001 400",
            "/dev/nvidia-caps/nvidia-cap77 511:77 444",
        ]
    );
}

/// `DeviceFileModify: 0` leaves a node to udev.
#[test]
fn a_node_that_may_not_be_made_is_not_made() {
    if !is_root("a_node_that_may_not_be_made_is_not_made") {
        return;
    }
    let (dir, mut finder, _) = by_hand();
    let gpu = dir.path().join("dev/nvidia4");
    fs::remove_file(&gpu).unwrap();
    mknodat(CWD, &gpu, FileType::CharacterDevice, Mode::RUSR, makedev(195, 4)).unwrap();
    finder.policy = DeviceNodes::CreateMissing;
    let found = ask(&finder).unwrap();
    assert_eq!(found.late, ["/dev/nvidia-caps/nvidia-cap9001"]);
    let made: Vec<_> = fs::read_dir(dir.path().join("dev/nvidia-caps"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(made, ["nvidia-cap77"]);
}

#[test]
fn what_is_missing_is_said_with_the_remedy() {
    type Damage = fn(&Path, &Path);
    let damages: [(Damage, &str); 6] = [
        (|_, instance| fs::remove_dir_all(instance.join("ci1")).unwrap(), "gi2/ci1/access: see"),
        (|_, instance| fs::remove_dir_all(instance).unwrap(), "MIG instance is gone"),
        (|_, instance| fs::write(instance.join("access"), "Minor: 1").unwrap(), "DeviceFileMinor"),
        (
            |dir, _| fs::remove_dir_all(dir.join("proc/driver/nvidia/capabilities")).unwrap(),
            "capabilities: it needs version R450",
        ),
        (
            |dir, _| {
                fs::write(dir.join("proc/devices"), "Character devices:\n195 nvidia\n").unwrap();
            },
            "devices: it needs version R450",
        ),
        (|dir, _| fs::remove_file(dir.join("dev/nvidia4")).unwrap(), "/dev/nvidia4 is missing"),
    ];
    for (damage, said) in damages {
        let (dir, finder, instance) = by_hand();
        damage(dir.path(), &instance);
        let error = ask(&finder).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(error.len() < 200, "{error}");
    }
}

/// The whole spec of a MIG device whose compute instance's node is late, recorded. After a
/// wanted change run with `UPDATE_GOLDEN=1` and read the difference.
#[test]
fn golden_spec_of_a_mig_device() {
    let staged = Staged::plain(Layout::GpuOperator);
    let node = |name: &str, major, minor, mode| {
        let (path, host_path) = (format!("/dev/{name}"), format!("/run/nvidia/driver/dev/{name}"));
        Node::Char(CharNode { path, host_path, major, minor, mode, uid: 0, gid: 0 })
    };
    let found = MigNodes {
        nodes: vec![
            node("nvidia1", 195, 1, 0o666),
            node("nvidia-caps/nvidia-cap147", 236, 147, 0o444),
            node("nvidia-caps/nvidia-cap148", 236, 148, 0o444),
        ],
        late: vec!["/dev/nvidia-caps/nvidia-cap148".to_owned()],
    };
    let files = DriverFiles {
        version: VERSION.to_owned(),
        libraries: Vec::new(),
        programs: Vec::new(),
        firmware: Vec::new(),
        configs: Vec::new(),
        sockets: Vec::new(),
    };
    let common =
        CommonNodes { nodes: vec![node("nvidiactl", 195, 255, 0o666)], absent: Vec::new() };
    let device = SpecDevice {
        device: DeviceName::new("gpu-1-mig-3g40gb-1").unwrap(),
        share: None,
        edits: mig_edits(&found),
    };
    let claim = ClaimUid::new("3f6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap();
    let common = common_edits(&files, &common, &staged.hook());
    let driver = DriverName::new("gpu.nvidia.com").unwrap();
    let spec = claim_spec(&driver, &claim, std::slice::from_ref(&device), &common).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mig.json");
    let bytes = spec.to_bytes().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), fs::read_to_string(&path).unwrap());
}
