//! MIG from mode to device, with the return codes that real drivers give.

use gpu_dra_sim_data::NodeType;
use gpu_dra_sim_data::control::{Fault, GpuControl, Process};
use gpu_dra_sim_data::mig_proc::gpu_instance_minor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::raw::*;
use crate::support::Machine;

#[test]
fn profiles_and_placements_are_those_of_the_tables() {
    for (name, node_type) in NodeType::all() {
        let machine = Machine::new(name);
        let nvml = machine.nvml();
        let device = nvml.device_by_index(0).unwrap();
        let Some(table) = &node_type.mig else {
            assert!(matches!(device.profile_info(0), Err(NvmlError::NotSupported)), "{name}");
            continue;
        };
        let mut seen = 0;
        for index in 0..18 {
            let info = match device.profile_info(index) {
                Ok(info) => info,
                Err(NvmlError::NotSupported) => continue,
                Err(error) => panic!("{name} {index}: {error}"),
            };
            seen += 1;
            let profile = &table.profiles[&info.id];
            assert_eq!(info.instance_count, profile.max);
            assert_eq!(info.memory_size_mb, profile.memory_mib);
            assert_eq!(info.multiprocessor_count, profile.multiprocessors);
            assert_eq!(
                placements(&nvml, &device, info.id),
                profile.placements().map(|place| (place.start, place.size)).collect::<Vec<_>>(),
                "{name} {}",
                profile.name
            );
            for word in [
                version::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2),
                version::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3),
            ] {
                let mut v2: sys::nvmlGpuInstanceProfileInfo_v2_t = zeroed();
                v2.version = word;
                let code =
                    call!(nvml, nvmlDeviceGetGpuInstanceProfileInfoV(raw(&device), index, &mut v2));
                assert_eq!((code, v2.id), (OK, info.id));
            }
        }
        assert_eq!(seen, table.profiles.len(), "{name}");
        assert!(matches!(device.profile_info(18), Err(NvmlError::InvalidArg)), "{name}");
    }
}

fn placements(
    nvml: &nvml_wrapper::Nvml,
    device: &nvml_wrapper::Device<'_>,
    id: u32,
) -> Vec<(u32, u32)> {
    let mut count = 0;
    let null = std::ptr::null_mut();
    let device = raw(device);
    assert_eq!(
        call!(nvml, nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, null, &mut count)),
        OK
    );
    let mut all = vec![sys::nvmlGpuInstancePlacement_t { start: 9, size: 9 }; count as usize];
    let code = call!(
        nvml,
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, all.as_mut_ptr(), &mut count)
    );
    assert_eq!(code, OK);
    all.iter().map(|place| (place.start, place.size)).collect()
}

#[test]
fn hopper_switches_at_once_ampere_after_a_reset() {
    let machine = Machine::new("h100+1xa100-80+1xl4");
    let nvml = machine.nvml();
    let by_name = |part: &str| {
        (0..3)
            .map(|index| nvml.device_by_index(index).unwrap())
            .find(|device| device.name().unwrap().contains(part))
            .unwrap()
    };
    let (hopper, ampere, ada) = (by_name("H100"), by_name("A100"), by_name("L4"));
    assert_eq!(hopper.mig_device_count().unwrap(), 0, "off");
    assert_eq!(hopper.set_mig_mode(true).unwrap(), 0);
    assert!(matches!(hopper.mig_mode(), Err(NvmlError::InvalidArg)), "a handle from before");
    let hopper = by_name("H100");
    assert_eq!(hopper.mig_mode().unwrap().current, 1);
    assert_eq!(hopper.mig_device_count().unwrap(), 7);
    assert_eq!(ampere.set_mig_mode(true).unwrap(), 16, "RESET_REQUIRED");
    let mode = ampere.mig_mode().unwrap();
    assert_eq!((mode.current, mode.pending), (0, 1));
    assert_eq!(create(&nvml, &ampere, 19).err(), Some(NOT_SUPPORTED), "still off");
    let bus_id = ampere.pci_info().unwrap().bus_id;
    let (code, text) = machine.smi(&["-i", &bus_id, "--gpu-reset"]);
    assert_eq!(
        (code, text.as_str()),
        (0, format!("GPU {bus_id} was successfully reset.\nAll done.\n").as_str())
    );
    let ampere = by_name("A100");
    assert_eq!(ampere.mig_mode().unwrap().current, 1);
    assert!(matches!(ada.set_mig_mode(true), Err(NvmlError::NotSupported)));
}

#[test]
fn an_instance_from_creation_to_destruction() {
    let machine = Machine::new("2xa100-80:mig=on");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(1).unwrap();
    let three = create(&nvml, &device, 9).unwrap();
    assert_eq!((three.id, three.start), (1, 4), "3g goes to 4:4");
    let four = create(&nvml, &device, 5).unwrap();
    assert_eq!((four.id, four.start), (2, 0));
    assert_eq!(create(&nvml, &device, 19).err(), Some(INSUFFICIENT_RESOURCES), "memory is full");
    assert_eq!(create(&nvml, &device, 999).err(), Some(NOT_SUPPORTED));
    assert_eq!(create_at(&nvml, &device, 14, 1, 2).err(), Some(INVALID_ARGUMENT));

    let mut profile: sys::nvmlComputeInstanceProfileInfo_t = zeroed();
    // Index 2 is three slices: all of a 3g instance.
    let code =
        call!(nvml, nvmlGpuInstanceGetComputeInstanceProfileInfo(three.handle, 2, 0, &mut profile));
    assert_eq!((code, profile.id, profile.multiprocessorCount), (OK, 2, 42));
    let code =
        call!(nvml, nvmlGpuInstanceGetComputeInstanceProfileInfo(three.handle, 4, 0, &mut profile));
    assert_eq!(code, NOT_SUPPORTED);
    let code =
        call!(nvml, nvmlGpuInstanceGetComputeInstanceProfileInfo(three.handle, 9, 0, &mut profile));
    assert_eq!(code, INVALID_ARGUMENT);

    let compute = create_compute(&nvml, three, 2).unwrap();
    assert_eq!(create_compute(&nvml, three, 0), Err(INSUFFICIENT_RESOURCES));
    let mut info: sys::nvmlComputeInstanceInfo_t = zeroed();
    assert_eq!(call!(nvml, nvmlComputeInstanceGetInfo_v2(compute, &mut info)), OK);
    assert_eq!((info.id, info.profileId, info.placement.size), (0, 2, 3));
    assert_eq!(info.device, raw(&device));
    assert_eq!(info.gpuInstance, three.handle);

    let mig = device.mig_device_by_index(0).unwrap();
    assert_eq!(mig.name().unwrap(), "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
    let uuid = mig.uuid().unwrap();
    assert!(uuid.starts_with("MIG-") && uuid.len() == 40, "{uuid}");
    assert_eq!(nvml.device_by_uuid(uuid.as_str()).unwrap().name().unwrap(), mig.name().unwrap());
    let attributes = mig.attributes().unwrap();
    assert_eq!((attributes.multiprocessor_count, attributes.memory_size_mb), (42, 40192));
    assert_eq!(attributes.shared_decoder_count, 2);
    assert_eq!(mig.memory_info().unwrap().total, 40192 << 20);
    let mut ids = (9, 9);
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceId(raw(&mig), &mut ids.0)), OK);
    assert_eq!(call!(nvml, nvmlDeviceGetComputeInstanceId(raw(&mig), &mut ids.1)), OK);
    assert_eq!(ids, (1, 0));
    assert!(mig.mig_is_mig_device_handle().unwrap());
    assert_eq!(mig.mig_parent_device().unwrap().uuid().unwrap(), device.uuid().unwrap());
    assert!(matches!(mig.minor_number(), Err(NvmlError::NotSupported)));
    assert!(matches!(device.mig_device_by_index(1), Err(NvmlError::NotFound)));

    assert_eq!(device.set_mig_mode(false).unwrap(), IN_USE);
    assert_eq!(
        call!(nvml, nvmlGpuInstanceDestroy(three.handle)),
        IN_USE,
        "it has a compute instance"
    );
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), OK);
    assert!(matches!(mig.name(), Err(NvmlError::InvalidArg)), "the handle died with it");
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), INVALID_ARGUMENT);
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(three.handle)), OK);
    let mut gone = zeroed();
    assert_eq!(call!(nvml, nvmlDeviceGetGpuInstanceById(raw(&device), 1, &mut gone)), NOT_FOUND);
    let again = create(&nvml, &device, 9).unwrap();
    assert_eq!(again.id, 1);
    assert_ne!(again.handle, three.handle, "an old handle is not the new instance's");
}

#[test]
fn small_instances_fill_the_gpu_and_leave_holes_in_the_indexes() {
    let machine = Machine::new("h100:mig=on");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let mut made = Vec::new();
    for _ in 0..7 {
        let instance = create(&nvml, &device, 19).unwrap();
        made.push((instance, create_compute(&nvml, instance, 0).unwrap()));
    }
    let mut ids: Vec<_> = made.iter().map(|(instance, _)| instance.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
    let mut room = 9;
    assert_eq!(
        call!(nvml, nvmlDeviceGetGpuInstanceRemainingCapacity(raw(&device), 19, &mut room)),
        OK
    );
    assert_eq!(room, 0);
    let mut handles = [zeroed(); 7];
    let mut count = 0;
    assert_eq!(
        call!(nvml, nvmlDeviceGetGpuInstances(raw(&device), 19, handles.as_mut_ptr(), &mut count)),
        OK
    );
    assert_eq!(count, 7);
    let (third, compute) = made[2];
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), OK);
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(third.handle)), OK);
    let there: Vec<_> = (0..7).map(|index| device.mig_device_by_index(index).is_ok()).collect();
    assert_eq!(there, [true, true, false, true, true, true, true]);
}

#[test]
fn an_instance_has_its_capability_files_and_nodes() {
    let machine = Machine::new("8xa100-80:mig=on");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let minor = device.minor_number().unwrap();
    assert_eq!(minor, 2, "not the index");
    let instance = create(&nvml, &device, 9).unwrap();
    let compute = create_compute(&nvml, instance, 2).unwrap();
    let access = gpu_instance_minor(minor, instance.id);
    let base = machine
        .node
        .proc_root
        .join(format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{}", instance.id));
    let text = std::fs::read_to_string(base.join("access")).unwrap();
    assert_eq!(
        text,
        format!("DeviceFileMinor: {access}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    );
    assert!(base.join("ci0/access").is_file());
    let caps = machine.node.dev_root.join("dev/nvidia-caps");
    assert!(caps.join(format!("nvidia-cap{access}")).is_file());
    assert!(caps.join(format!("nvidia-cap{}", access + 1)).is_file());
    let minors =
        std::fs::read_to_string(machine.node.proc_root.join("driver/nvidia-caps/mig-minors"))
            .unwrap();
    assert!(minors.contains(&format!("gpu{minor}/gi{}/ci0/access {}\n", instance.id, access + 1)));
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), OK);
    assert!(!base.join("ci0").exists() || !base.join("ci0/access").exists());
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(instance.handle)), OK);
    assert!(!base.exists());
}

#[test]
fn instances_outlive_processes_but_not_a_reboot() {
    let machine = Machine::new("h100:mig=on");
    {
        let nvml = machine.nvml();
        let device = nvml.device_by_index(0).unwrap();
        let instance = create(&nvml, &device, 19).unwrap();
        create_compute(&nvml, instance, 0).unwrap();
    }
    let (code, list) = machine.smi(&["-L"]);
    assert_eq!(code, 0);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("  MIG 1g.10gb     Device  0: (UUID: MIG-"), "{list}");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    // Another process changes the mode of persistence, this one sees it.
    let (code, text) = machine.smi(&["-pm", "1"]);
    assert_eq!(code, 0, "{text}");
    assert!(device.is_in_persistent_mode().unwrap());
    let before = std::fs::read(machine.node.proc_root.join("sys/kernel/random/boot_id")).unwrap();
    machine.node.state_dir.reboot().unwrap();
    assert_ne!(
        std::fs::read(machine.node.proc_root.join("sys/kernel/random/boot_id")).unwrap(),
        before
    );
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.mig_mode().unwrap().current, 0, "Hopper forgets");
    assert!(!device.is_in_persistent_mode().unwrap());
    assert_eq!(machine.smi(&["-L"]).1.lines().count(), 1);
}

#[test]
fn two_threads_never_get_the_same_place() {
    let machine = Machine::new("h100:mig=on");
    let nvml = machine.nvml();
    let made: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let device = nvml.device_by_index(0).unwrap();
                    (0..2)
                        .filter_map(|_| create(&nvml, &device, 19).ok().map(|i| i.id))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut ids = made;
    ids.sort_unstable();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13], "seven of eight requests");
}

/// What a client does that has the GPU, or handles of what was on it.
#[test]
fn a_client_keeps_mode_and_instances_as_they_are() {
    let machine = Machine::new("h100");
    let nvml = machine.nvml();
    let device = || nvml.device_by_index(0).unwrap();
    let trouble = |change: fn(&mut GpuControl)| {
        machine
            .node
            .state_dir
            .control_with(|control| {
                control.gpus.clear();
                change(control.gpus.entry("0".to_owned()).or_default());
            })
            .unwrap();
    };
    type Holds = fn(&mut GpuControl);
    for holds in [(|gpu| gpu.mig_mode_held = true) as Holds, |gpu| {
        gpu.processes.push(Process { pid: 4711, memory_mib: 1, ..Process::default() });
    }] {
        trouble(holds);
        assert_eq!(device().set_mig_mode(true).unwrap(), IN_USE);
        let mode = device().mig_mode().unwrap();
        assert_eq!((mode.current, mode.pending), (0, 1));
        assert_eq!(device().set_mig_mode(false).unwrap(), 0, "taken back");
        assert_eq!(device().mig_mode().unwrap().pending, 0);
    }
    trouble(|_| {});
    assert_eq!(device().set_mig_mode(true).unwrap(), 0);
    let instance = create(&nvml, &device(), 19).unwrap();
    let compute = create_compute(&nvml, instance, 0).unwrap();
    trouble(|gpu| gpu.instances_held = true);
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), IN_USE);
    trouble(|_| {});
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), OK);
    trouble(|gpu| gpu.instances_held = true);
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(instance.handle)), IN_USE);
    trouble(|_| {});
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(instance.handle)), OK);
}

/// Each call of the life of an instance can be made to fail by its name, once or always, and
/// has then not happened.
#[test]
fn each_call_can_be_made_to_fail() {
    let machine = Machine::new("h100:mig=on");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let fail = |function: &str, error| {
        machine
            .node
            .state_dir
            .control_with(|control| {
                control.faults = vec![Fault {
                    function: function.to_owned(),
                    gpu: Some("0".to_owned()),
                    error: Some(error),
                    times: Some(1),
                    ..Fault::default()
                }];
            })
            .unwrap();
    };
    let state = || machine.node.state_dir.state().unwrap();
    let untouched = state();
    fail("nvmlDeviceCreateGpuInstanceWithPlacement", INSUFFICIENT_RESOURCES);
    assert_eq!(create_at(&nvml, &device, 19, 3, 1).err(), Some(INSUFFICIENT_RESOURCES));
    assert_eq!(state(), untouched);
    let instance = create_at(&nvml, &device, 19, 3, 1).unwrap();
    assert_eq!((instance.id, instance.start), (10, 3));
    fail("nvmlGpuInstanceCreateComputeInstance", 999);
    assert_eq!(create_compute(&nvml, instance, 0), Err(999));
    let compute = create_compute(&nvml, instance, 0).unwrap();
    let made = state();
    fail("nvmlComputeInstanceDestroy", IN_USE);
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), IN_USE);
    assert_eq!(state(), made);
    assert_eq!(call!(nvml, nvmlComputeInstanceDestroy(compute)), OK);
    fail("nvmlGpuInstanceDestroy", IN_USE);
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(instance.handle)), IN_USE);
    assert_eq!(call!(nvml, nvmlGpuInstanceDestroy(instance.handle)), OK);
    fail("nvmlDeviceSetMigMode", IN_USE);
    assert!(matches!(device.set_mig_mode(false), Err(NvmlError::InUse)));
    assert_eq!(device.mig_mode().unwrap().pending, 1);
    assert_eq!(device.set_mig_mode(false).unwrap(), 0);
}
