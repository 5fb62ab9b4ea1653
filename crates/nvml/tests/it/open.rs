//! Everything that can be wrong with library, driver or container, and the sentence for it;
//! libraries older than some functions; a driver that arrives late.

use std::fs;

use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::{Fabric, Mig};
use gpu_dra_nvml::{Driver, Gpus, Session};

use crate::stub::Stub;

fn sentence(stub: &Stub) -> String {
    let error = Session::open(&stub.library, &stub.trees).unwrap_err();
    assert!(!stub.is_loaded(), "the library must not stay loaded after: {error}");
    error.to_string().replace(&*stub.path("").to_string_lossy(), "T/")
}

#[test]
fn file_that_is_no_library() {
    let stub = Stub::build(&[]);
    let file = stub.path("libnvidia-ml.so.450.51.06");
    let whole = fs::read(&file).unwrap();

    fs::remove_file(&file).unwrap();
    assert!(sentence(&stub).starts_with("this machine has no NVIDIA GPU on its PCI bus and no"));
    stub.write("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n");
    stub.write("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n");
    assert!(sentence(&stub).starts_with("no libnvidia-ml.so.1 at T/libnvidia-ml.so.1: install"));
    stub.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  450.51.06  x\n");
    assert!(
        sentence(&stub).starts_with("the NVIDIA driver is loaded, but T/libnvidia-ml.so.1 has")
    );

    fs::write(&file, "not a library ".repeat(9)).unwrap();
    assert!(sentence(&stub).starts_with("T/libnvidia-ml.so.1 can't be loaded: it must be"));

    let mut foreign = whole.clone();
    foreign[18] = 0xF3; // e_machine: RISC-V
    foreign[19] = 0;
    fs::write(&file, foreign).unwrap();
    assert!(sentence(&stub).contains(std::env::consts::ARCH));

    fs::write(&file, whole.get(..whole.len() / 4).unwrap()).unwrap();
    assert!(sentence(&stub).starts_with("T/libnvidia-ml.so.1 is cut short: it is still being"));

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(sentence(&stub).starts_with("T/libnvidia-ml.so.1 is a directory, not a library"));
}

#[test]
fn library_that_lacks_shutdown_is_refused_not_crashed_on() {
    let stub = Stub::build(&["-DNO_SHUTDOWN"]);
    assert_eq!(
        sentence(&stub),
        "T/libnvidia-ml.so.1 has no nvmlShutdown: it is not NVIDIA's library or is too old; \
         install driver 450 or newer"
    );
    assert_eq!(stub.log(), [""; 0], "never started");
}

#[test]
fn driver_not_loaded_or_only_its_nodes_missing() {
    let stub = Stub::build(&[]);
    stub.set("init", 9);
    assert!(sentence(&stub).starts_with("the NVIDIA kernel driver is not loaded: run `modprobe"));

    stub.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  450.51.06  x\n");
    assert!(sentence(&stub).starts_with("the NVIDIA driver is loaded but T/dev has no GPU nodes"));

    stub.write("dev/nvidiactl", "");
    assert!(sentence(&stub).starts_with("the NVIDIA driver is loaded but T/dev has no GPU nodes"));

    stub.write("dev/nvidia0", "");
    assert!(sentence(&stub).starts_with("the NVIDIA kernel driver is not loaded"));
}

#[test]
fn library_and_driver_of_different_versions() {
    let stub = Stub::build(&[]);
    stub.set("init", 18);
    assert!(sentence(&stub).contains("450.51.06 doesn't match kernel driver of unknown version"));
    stub.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n",
    );
    assert_eq!(
        sentence(&stub),
        "NVIDIA library 450.51.06 doesn't match kernel driver 570.124.06: reboot, or reload the \
         nvidia modules"
    );
}

#[test]
fn no_permission_and_unlisted_failures() {
    let stub = Stub::build(&[]);
    stub.set("init", 4);
    assert!(sentence(&stub).starts_with("no permission to use T/dev/nvidiactl: run as root"));
    stub.set("init", 999);
    assert!(sentence(&stub).starts_with("NVML did not start; see `dmesg"));
    stub.set("init", 4711);
    let error = Session::open(&stub.library, &stub.trees).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "nvmlInit_v2: unlisted error (NVML 4711)");
}

#[test]
fn zero_gpus_and_why() {
    let stub = Stub::build(&[]);
    stub.set("count", 0);
    assert!(sentence(&stub).contains("this machine has no NVIDIA GPU"));

    for (address, vendor, class) in [
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:5e:00.0", "0x10de", "0x030000"),
        ("0000:05:00.0", "0x10de", "0x068000"), // an NVSwitch
        ("0000:00:02.0", "0x8086", "0x030000"), // another maker's GPU
    ] {
        stub.write(&format!("sys/bus/pci/devices/{address}/vendor"), &format!("{vendor}\n"));
        stub.write(&format!("sys/bus/pci/devices/{address}/class"), &format!("{class}\n"));
    }
    assert!(sentence(&stub).starts_with("the NVIDIA driver is loaded but T/dev has no GPU nodes"));

    stub.write("dev/nvidia0", "");
    assert!(sentence(&stub).starts_with("the driver uses none of 2 NVIDIA GPUs on the PCI bus"));
    assert_eq!(stub.log(), ["init", "shutdown"].repeat(3), "every start was stopped again");
}

#[test]
fn library_without_newer_functions_still_shows_its_gpu() {
    let stub = Stub::build(&[]);
    let inventory = Session::open(&stub.library, &stub.trees).unwrap().probe().unwrap();
    assert_eq!(inventory.broken, []);
    assert_eq!(inventory.driver.driver, "450.51.06");
    assert_eq!((inventory.driver.cuda, &inventory.driver.nvml), (None, &None));
    let [gpu] = &*inventory.gpus else { panic!("one GPU: {inventory:?}") };
    assert_eq!(gpu.pci_bus_id.as_str(), "000f:3b:00.0");
    assert_eq!((gpu.minor.0, &*gpu.product_name), (4, "Old GPU"));
    assert_eq!((&gpu.brand, &gpu.architecture, gpu.compute_capability), (&None, &None, None));
    assert_eq!((gpu.memory_bytes, gpu.memory_bus_width_bits), (None, None));
    assert_eq!((&gpu.pcie_root, gpu.numa_node, gpu.addressing_mode), (&None, None, None));
    assert_eq!((gpu.module_id, &gpu.fabric, gpu.vgpu_guest), (None, &None, false));
    assert_eq!(gpu.mig, Mig::Unsupported);
}

#[test]
fn older_structures_are_asked_for_in_turn() {
    let probe = |options: &[&str]| {
        let stub = Stub::build(options);
        let inventory = Session::open(&stub.library, &stub.trees).unwrap().probe().unwrap();
        let [gpu] = &*inventory.gpus else { panic!("one GPU: {inventory:?}") };
        (gpu.memory_bytes, gpu.fabric.clone())
    };
    let fabric = |cluster_uuid: &str, clique_id| {
        Some(Fabric { cluster_uuid: cluster_uuid.to_owned(), clique_id })
    };
    assert_eq!(
        probe(&["-DOLDER"]),
        (Some(16 << 30), fabric("abababab-abab-abab-abab-abababababab", 7))
    );
    assert_eq!(
        probe(&["-DOLDEST"]),
        (None, fabric("00000000-0000-0000-0000-000000000000", 5)),
        "a zero cluster is that of one node's switches"
    );
}

/// `driver-arrives-late`: the agent starts before the driver is installed, and holds neither
/// library nor driver module while it waits.
#[test]
fn driver_arrives_late() {
    let stub = Stub::build(&[]);
    let installed = stub.path("lib64/libnvidia-ml.so.1");
    let place = installed.clone();
    let driver = Driver::new(move || Ok(place.clone()), stub.trees.clone());
    let waits = |why: &str| {
        for error in [driver.probe().unwrap_err(), driver.fingerprint().unwrap_err()] {
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(!driver.is_open() && !stub.is_loaded(), "waiting must hold nothing");
    };

    waits("no driver at");
    fs::create_dir_all(&installed).unwrap();
    waits("is a directory");
    fs::remove_dir(&installed).unwrap();
    fs::copy(&stub.library, &installed).unwrap();
    stub.set("init", 9);
    waits("is not loaded");
    stub.set("init", 0);
    stub.set("count", 0);
    waits("no NVIDIA GPU");
    stub.set("count", 1);
    stub.write("dev/nvidia0", "");
    assert_eq!(driver.probe().unwrap().gpus.len(), 1);
    assert!(driver.is_open());

    // The last GPU is drained, then the driver goes: let go of the module at once.
    stub.set("count", 0);
    waits("no NVIDIA GPU");
    fs::remove_file(&installed).unwrap();
    waits("no driver at");
}

#[test]
fn session_is_reopened_when_the_kernel_binds_another_gpu() {
    let stub = Stub::build(&[]);
    let library = stub.library.clone();
    let driver = Driver::new(move || Ok(library.clone()), stub.trees.clone());
    let inventory = driver.probe().unwrap();
    assert!(!driver.fingerprint().unwrap().outdates(&inventory));
    assert_eq!(stub.log(), ["init"], "one session for all");

    stub.set("count", 2);
    stub.write("proc/driver/nvidia/gpus/0000:5e:00.0/information", "");
    assert!(driver.fingerprint().unwrap().outdates(&inventory));
    assert_eq!(stub.log(), ["init", "shutdown", "init"]);
    driver.close();
    assert!(!stub.is_loaded());
}

#[test]
fn acts_without_the_function_say_so() {
    let stub = Stub::build(&[]);
    let library = stub.library.clone();
    let driver = Driver::new(move || Ok(library.clone()), stub.trees);
    let uuid = GpuUuid::new("GPU-11111111-0000-0000-0000-000000000000").unwrap();
    let error = driver.minor_of(&uuid).unwrap_err();
    assert_eq!(error.to_string(), format!("{uuid} refused"));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "nvmlDeviceGetHandleByUUID: the library has no such function (NVML 13)");
}
