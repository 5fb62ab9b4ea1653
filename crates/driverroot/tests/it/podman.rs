//! A claim's spec given to podman with runc, which know nothing of us: the container gets
//! the nodes, files, links and environment of its GPU and of no other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_dra_driverroot::{DeviceNodes, Hook};
use gpu_dra_sim_data::{self as sim, Layout};

use crate::edits::spec;
use crate::podman_root;
use crate::support::{Staged, VERSION, is_root, skipped};

const DEVICE: &str = "k8s.gpu.nvidia.com/claim=3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-1";

/// The hook as it is shipped: linked statically, optimised.
fn static_hook() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = workspace.join("target/static");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "gpu-dra-hook", "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(&workspace)
        .status()
        .unwrap();
    assert!(status.success(), "the hook must build");
    let hook = folder.join(target).join("release/gpu-dra-hook");
    let ldd = Command::new("ldd").arg(&hook).output().unwrap();
    let text = String::from_utf8([ldd.stdout, ldd.stderr].concat()).unwrap();
    assert!(
        text.contains("statically linked") || text.contains("not a dynamic executable"),
        "a dynamic hook needs the host's own C library: {text}"
    );
    hook
}

struct Container {
    staged: Staged,
    cdi: PathBuf,
    root: PathBuf,
}

impl Container {
    /// Says what is missing where containers can't be run.
    fn new(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        for program in ["/usr/bin/podman", "/usr/sbin/runc", "/bin/busybox"] {
            if !Path::new(program).exists() {
                skipped(&format!("{test} needs {program}"));
                return None;
            }
        }
        let staged = Staged::new(Layout::GpuOperator, sim::DeviceNodes::Real);
        // A libcuda that programs can really load.
        let libcuda = staged.node.driver_root.join(format!("usr/lib64/libcuda.so.{VERSION}"));
        fs::remove_file(&libcuda).unwrap();
        podman_root::compile(
            "int answer(void) { return 42; }",
            &libcuda,
            &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
        );
        let cdi = staged.dir.path().join("cdi");
        let root = staged.dir.path().join("rootfs");
        fs::create_dir(&cdi).unwrap();
        podman_root::build(&root, Path::new("/bin/busybox"));
        Some(Self { staged, cdi, root })
    }

    /// Writes the claim's spec, with host paths as they are on this host.
    fn prepare(&self) {
        let hook = static_hook();
        let hook = Hook::find(&hook, &hook).unwrap();
        let spec = spec(&self.staged, DeviceNodes::MustExist, &hook);
        let bytes = String::from_utf8(spec.to_bytes().unwrap()).unwrap();
        let host_root = self.staged.node.host_root.to_str().unwrap();
        let real = bytes.replace(
            "\"hostPath\": \"/run/nvidia/driver",
            &format!("\"hostPath\": \"{host_root}/run/nvidia/driver"),
        );
        fs::write(self.cdi.join("claim.json"), real).unwrap();
    }

    /// Runs a line of shell in a container with these podman options.
    fn run(&self, options: &str, script: &str) -> (bool, String) {
        fs::write(self.root.join("script"), script).unwrap();
        let dir = self.staged.dir.path().display();
        let podman = format!(
            "mount -t tmpfs tmpfs /run; mkdir /run/cdi; cp {dir}/cdi/* /run/cdi/ 2>/dev/null || true
             exec podman --root {dir}/storage --runroot /run/containers --runtime /usr/sbin/runc \
             --cgroup-manager cgroupfs --storage-driver vfs --log-level error run --rm --network none \
             --cgroups enabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 {options} \
             --rootfs {dir}/rootfs /bin/sh /script"
        );
        let output = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", &podman])
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    }
}

const LIST: &str = r#"
    export PATH=/usr/bin:/bin
    for node in $(busybox find /dev -name 'nvidia*' -o -path '/dev/dri/*' | busybox sort); do
        if [ -d "$node" ]; then continue; fi
        if [ -L "$node" ]; then echo "link $node $(busybox readlink $node)"; continue; fi
        echo "node $(busybox stat -c '%n %F %t:%T %a' $node)"
    done
    echo "env $NVIDIA_VISIBLE_DEVICES"
    echo "libcuda $(probe libcuda.so.1)"
    echo "libcuda-dev $(probe libcuda.so)"
    echo "soname $(busybox readlink /usr/lib64/libnvidia-ml.so.1)"
    echo "firmware $(busybox ls /lib/firmware/nvidia/*/)"
    nvidia-smi 2>&1
    echo "smi $?"
    if busybox touch /usr/lib64/libcuda.so.* 2>/dev/null; then echo "libraries can be written"; fi
    exit 0
"#;

#[test]
fn a_container_gets_its_gpu_and_no_other() {
    let Some(container) = Container::new("a_container_gets_its_gpu_and_no_other") else { return };
    let (ran, text) = container.run("", LIST);
    assert!(ran, "{text}");
    assert!(!text.contains("nvidia1"), "without a claim there is nothing: {text}");
    assert!(text.contains("libcuda libcuda.so.1: cannot open"), "{text}");
    let (ran, text) = container.run(&format!("--device {DEVICE}"), LIST);
    assert!(!ran && text.contains("unresolvable CDI devices"), "before Prepare: {text}");

    container.prepare();
    let pci = container.staged.pci()[1].clone();
    let mut expected = vec![
        format!("link /dev/dri/by-path/pci-{pci}-card ../card2"),
        format!("link /dev/dri/by-path/pci-{pci}-render ../renderD129"),
        "node /dev/dri/card2 character special file e2:2 666".to_owned(),
        "node /dev/dri/renderD129 character special file e2:81 666".to_owned(),
        "node /dev/nvidia-modeset character special file c3:fe 666".to_owned(),
        "node /dev/nvidia-uvm character special file 1fe:0 666".to_owned(),
        "node /dev/nvidia-uvm-tools character special file 1fe:1 666".to_owned(),
        "node /dev/nvidia1 character special file c3:1 666".to_owned(),
        "node /dev/nvidiactl character special file c3:ff 666".to_owned(),
        "env void".to_owned(),
        "libcuda 42".to_owned(),
        "libcuda-dev 42".to_owned(),
        format!("soname libnvidia-ml.so.{VERSION}"),
        "firmware gsp_ga10x.bin".to_owned(),
        "gsp_tu10x.bin".to_owned(),
        "nvidia-smi: the driver is simulated and has no such program".to_owned(),
        "smi 1".to_owned(),
    ];
    let (ran, text) = container.run(&format!("--device {DEVICE}"), LIST);
    assert!(ran, "{text}");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    expected.sort();
    lines.sort();
    assert_eq!(lines, expected);
}

/// The device cgroup, not only the missing name, keeps the other GPU away: opening a node
/// whose driver isn't loaded fails with ENXIO where the cgroup allows it, EPERM where not.
#[test]
fn the_other_gpu_cannot_be_opened_by_making_its_node() {
    let test = "the_other_gpu_cannot_be_opened_by_making_its_node";
    let Some(container) = Container::new(test) else { return };
    container.prepare();
    let script = "
        export PATH=/bin
        busybox mknod /tmp/other c 195 0 || exit 3
        busybox cat /dev/nvidia1
        busybox cat /tmp/other
        exit 0";
    let (ran, text) = container.run(&format!("--cap-add MKNOD --device {DEVICE}"), script);
    assert!(ran, "{text}");
    assert!(text.contains("/dev/nvidia1': No such device or address"), "{text}");
    assert!(text.contains("/tmp/other': Operation not permitted"), "{text}");
}

/// The hook runs before the root file system is made read-only.
#[test]
fn a_read_only_container_finds_the_libraries_too() {
    let test = "a_read_only_container_finds_the_libraries_too";
    let Some(container) = Container::new(test) else { return };
    container.prepare();
    let script = "/bin/probe libcuda.so.1; /bin/busybox touch /etc/x; exit 0";
    let (ran, text) = container.run(&format!("--read-only --device {DEVICE}"), script);
    assert!(ran, "{text}");
    assert!(text.contains("42"), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
}
