//! What goes wrong when the control file says so, while a client runs.

use std::time::{Duration, Instant};

use gpu_dra_sim_data::control::{Event, Fault, GpuControl, Lost, Remapped};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::raw::*;
use crate::support::Machine;

const XID: u64 = 0x8;
const MIG_CONFIG_CHANGE: u64 = 0x100;

#[test]
fn a_library_that_can_not_start_says_why() {
    let machine = Machine::new("2xl4");
    for (code, check) in [
        (9, (|error| matches!(error, NvmlError::DriverNotLoaded)) as fn(&NvmlError) -> bool),
        (18, |error| matches!(error, NvmlError::LibRmVersionMismatch)),
        (4, |error| matches!(error, NvmlError::NoPermission)),
    ] {
        machine.node.state_dir.control_with(|control| control.init = Some(code)).unwrap();
        let error = machine.try_nvml().err().unwrap();
        assert!(check(&error), "{code}: {error}");
    }
    machine
        .node
        .state_dir
        .control_with(|control| {
            control.init = None;
            control.no_gpus = true;
        })
        .unwrap();
    assert_eq!(machine.nvml().device_count().unwrap(), 0);
}

#[test]
fn a_lost_gpu_answers_nothing_and_its_neighbours_go_on() {
    let machine = Machine::new("3xl4");
    let nvml = machine.nvml();
    let devices: Vec<_> = (0..3).map(|index| nvml.device_by_index(index).unwrap()).collect();
    let lose = |how| {
        machine
            .node
            .state_dir
            .control_with(|control| {
                control.gpus.insert(
                    "1".to_owned(),
                    GpuControl { lost: Some(how), ..GpuControl::default() },
                );
            })
            .unwrap();
    };
    lose(Lost::Error);
    assert_eq!(nvml.device_count().unwrap(), 3);
    assert!(matches!(devices[1].uuid(), Err(NvmlError::GpuLost)));
    assert!(matches!(
        devices[1].supported_memory_clocks(),
        Err(NvmlError::GpuLost | NvmlError::NotSupported)
    ));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(devices[0].uuid().is_ok() && devices[2].uuid().is_ok());
    lose(Lost::Dropped);
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.device_by_index(1).unwrap().uuid().unwrap(), devices[2].uuid().unwrap());
    assert!(matches!(devices[1].uuid(), Err(NvmlError::GpuLost)));
    std::fs::remove_file(machine.node.state_dir.path().join("control.json")).unwrap();
    assert!(devices[1].uuid().is_ok(), "it came back");
}

#[test]
fn one_function_fails_on_one_gpu_so_many_times() {
    let machine = Machine::new("2xl4");
    let nvml = machine.nvml();
    let (zero, one) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    machine
        .node
        .state_dir
        .control_with(|control| {
            control.faults = vec![
                Fault {
                    function: "nvmlDeviceGetName".to_owned(),
                    gpu: Some("1".to_owned()),
                    error: Some(999),
                    times: Some(2),
                    ..Fault::default()
                },
                Fault {
                    function: "nvmlDeviceGetSer*".to_owned(),
                    delay_ms: 60,
                    ..Fault::default()
                },
            ];
        })
        .unwrap();
    assert!(zero.name().is_ok());
    assert!(matches!(one.name(), Err(NvmlError::Unknown)));
    assert!(matches!(one.name(), Err(NvmlError::Unknown)));
    assert!(one.name().is_ok(), "two times and no more");
    let start = Instant::now();
    assert!(zero.serial().is_ok());
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn nonsense_is_in_the_callers_memory_and_nowhere_else() {
    let machine = Machine::new("2xl4");
    let nvml = machine.nvml();
    let (zero, one) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    let right = one.uuid().unwrap();
    let mut other = 0;
    for seed in 0..30 {
        let garbage = Fault {
            function: "nvmlDeviceGetUUID".to_owned(),
            gpu: Some("1".to_owned()),
            garbage: Some(seed),
            ..Fault::default()
        };
        machine.node.state_dir.control_with(|control| control.faults = vec![garbage]).unwrap();
        let mut buffer = [7; 96 + 8];
        let code = call!(nvml, nvmlDeviceGetUUID(raw(&one), buffer.as_mut_ptr(), 96));
        assert_eq!((code, &buffer[96..]), (OK, &[7; 8][..]), "seed {seed}");
        let text: Vec<u8> = buffer.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        other += u32::from(text != right.as_bytes());
        assert!(zero.uuid().is_ok() && one.minor_number().is_ok(), "seed {seed}");
    }
    assert!(other > 10, "{other} of 30");
}

#[test]
fn errors_of_memory_and_the_recovery_action_show() {
    let machine = Machine::new("h100+1xt4");
    let nvml = machine.nvml();
    machine
        .node
        .state_dir
        .control_with(|control| {
            let trouble = GpuControl {
                recovery_action: 2,
                remapped: Remapped { uncorrected: 1, pending: true, ..Remapped::default() },
                memory_used_mib: 100,
                ..GpuControl::default()
            };
            control.gpus.insert("0".to_owned(), trouble);
            control.gpus.entry("0".to_owned()).or_default().ecc.volatile_uncorrected = 3;
            control.gpus.entry("1".to_owned()).or_default().retired_pages.double_bit = 4;
        })
        .unwrap();
    let (hopper, turing) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
    assert_eq!(hopper.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 3);
    assert_eq!(hopper.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).unwrap(), 0);
    assert_eq!(hopper.memory_info().unwrap().used, 100 << 20);
    let (mut a, mut b, mut c, mut d) = (9, 9, 9, 9);
    let code = call!(nvml, nvmlDeviceGetRemappedRows(raw(&hopper), &mut a, &mut b, &mut c, &mut d));
    assert_eq!((code, a, b, c, d), (OK, 0, 1, 1, 0));
    assert_eq!(field(&nvml, &hopper, 230), Ok(2));
    assert_eq!(field(&nvml, &hopper, 144), Ok(1));
    assert_eq!(field(&nvml, &hopper, 29), Err(NOT_SUPPORTED), "no pages are retired on Hopper");
    assert_eq!(field(&nvml, &turing, 30), Ok(4));
    assert_eq!(field(&nvml, &turing, 144), Err(NOT_SUPPORTED), "no rows are remapped on Turing");
}

fn field(
    nvml: &nvml_wrapper::Nvml,
    device: &nvml_wrapper::Device<'_>,
    id: u32,
) -> Result<u64, u32> {
    let mut value: sys::nvmlFieldValue_t = zeroed();
    value.fieldId = id;
    assert_eq!(call!(nvml, nvmlDeviceGetFieldValues(raw(device), 1, &mut value)), OK);
    // SAFETY: the library writes the whole union.
    if value.nvmlReturn == OK { Ok(unsafe { value.value.ullVal }) } else { Err(value.nvmlReturn) }
}

/// An event set by the C functions, freed when dropped.
struct Events<'nvml> {
    nvml: &'nvml nvml_wrapper::Nvml,
    set: sys::nvmlEventSet_t,
}

impl<'nvml> Events<'nvml> {
    fn new(nvml: &'nvml nvml_wrapper::Nvml) -> Self {
        let mut set = zeroed();
        assert_eq!(call!(nvml, nvmlEventSetCreate(&mut set)), OK);
        Self { nvml, set }
    }

    fn register(&self, device: &nvml_wrapper::Device<'_>, kinds: u64) -> u32 {
        call!(self.nvml, nvmlDeviceRegisterEvents(raw(device), kinds, self.set))
    }

    fn wait(&self, timeout_ms: u32) -> Result<sys::nvmlEventData_t, u32> {
        let mut data = zeroed();
        let code = call!(self.nvml, nvmlEventSetWait_v2(self.set, &mut data, timeout_ms));
        if code == OK { Ok(data) } else { Err(code) }
    }
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        assert_eq!(call!(self.nvml, nvmlEventSetFree(self.set)), OK);
    }
}

#[test]
fn an_xid_reaches_those_who_wait_for_it() {
    let machine = Machine::new("2xh100");
    let nvml = machine.nvml();
    let (zero, one) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    let raise = |event: Event| {
        machine.node.state_dir.control_with(|control| control.events.push(event)).unwrap();
    };
    raise(Event::xid("0", 31));
    let events = Events::new(&nvml);
    assert_eq!(events.register(&zero, XID), OK);
    let start = Instant::now();
    assert_eq!(events.wait(50).err(), Some(TIMEOUT), "what was before isn't told");
    assert!(start.elapsed() >= Duration::from_millis(50), "it must block");
    raise(Event::xid("1", 48));
    assert_eq!(events.wait(50).err(), Some(TIMEOUT), "the other GPU isn't registered");
    assert_eq!(events.register(&one, XID), OK);
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Events::new(&nvml).register(&zero, XID));
        assert_eq!(waiting.join().unwrap(), OK);
        raise(Event { gpu_instance: Some(7), compute_instance: Some(0), ..Event::xid("1", 94) });
        raise(Event::xid(&zero.uuid().unwrap(), 79));
        [events.wait(2000).unwrap(), events.wait(2000).unwrap()]
    });
    assert_eq!((waited[0].eventType, waited[0].eventData), (XID, 94));
    assert_eq!((waited[0].gpuInstanceId, waited[0].computeInstanceId), (7, 0));
    assert_eq!(waited[0].device, raw(&one));
    assert_eq!((waited[1].eventData, waited[1].gpuInstanceId), (79, 0xffff_ffff));
}

#[test]
fn a_gpu_registers_only_what_it_can_raise() {
    let machine = Machine::new("h100+1xgb10");
    let nvml = machine.nvml();
    let (hopper, spark) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    let supported = |device| {
        let mut kinds = 0;
        assert_eq!(call!(nvml, nvmlDeviceGetSupportedEventTypes(raw(device), &mut kinds)), OK);
        kinds
    };
    assert_eq!(supported(&hopper) & 0x810b, 0x810b);
    assert_eq!(supported(&spark) & 0x103, 0);
    let events = Events::new(&nvml);
    assert_eq!(events.register(&spark, XID | 0x2), NOT_SUPPORTED);
    assert_eq!(events.register(&spark, XID), OK, "the set is still good");
}

#[test]
fn a_change_of_the_mig_configuration_is_an_event() {
    let machine = Machine::new("h100:mig=on");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let events = Events::new(&nvml);
    assert_eq!(events.register(&device, MIG_CONFIG_CHANGE), OK);
    create(&nvml, &device, 19).unwrap();
    assert_eq!(events.wait(1000).unwrap().eventType, MIG_CONFIG_CHANGE);
    assert_eq!(events.wait(20).err(), Some(TIMEOUT));
}

#[test]
fn losing_a_gpu_ends_a_wait_once() {
    let machine = Machine::new("2xl4");
    let nvml = machine.nvml();
    let events = Events::new(&nvml);
    for index in 0..2 {
        assert_eq!(events.register(&nvml.device_by_index(index).unwrap(), XID), OK);
    }
    machine
        .node
        .state_dir
        .control_with(|control| {
            control.gpus.insert(
                "1".to_owned(),
                GpuControl { lost: Some(Lost::Error), ..GpuControl::default() },
            );
            control.events.push(Event::xid("1", 79));
        })
        .unwrap();
    assert_eq!(events.wait(1000).unwrap().eventData, 79);
    assert_eq!(events.wait(1000).err(), Some(GPU_IS_LOST));
    assert_eq!(events.wait(20).err(), Some(TIMEOUT));
}

#[test]
fn the_fabric_comes_up_late() {
    let machine = Machine::new("2xgb200:clique=7+1xl4");
    let nvml = machine.nvml();
    let by_name = |part: &str| {
        (0..3)
            .map(|index| nvml.device_by_index(index).unwrap())
            .find(|device| device.name().unwrap().contains(part))
            .unwrap()
    };
    let fabric = |device: &nvml_wrapper::Device<'_>, word: u32| {
        let mut info: sys::nvmlGpuFabricInfoV_t = zeroed();
        info.version = word;
        let code = call!(nvml, nvmlDeviceGetGpuFabricInfoV(raw(device), &mut info));
        (code, info.state, info.cliqueId, info.clusterUuid != [0; 16])
    };
    let (v2, v3) =
        (version::<sys::nvmlGpuFabricInfo_v2_t>(2), version::<sys::nvmlGpuFabricInfo_v3_t>(3));
    let rack = by_name("GB200");
    assert_eq!(fabric(&rack, v3), (OK, 3, 7, true));
    assert_eq!(fabric(&rack, v2), (OK, 3, 7, true));
    assert_eq!(fabric(&rack, 77).0, VERSION_MISMATCH);
    assert_eq!(fabric(&by_name("L4"), v3).0, NOT_SUPPORTED);
    machine
        .node
        .state_dir
        .control_with(|control| {
            control.gpus.insert(
                "*".to_owned(),
                GpuControl { fabric_state: Some(2), ..GpuControl::default() },
            );
        })
        .unwrap();
    assert_eq!(fabric(&rack, v3), (OK, 2, 0, false));
}

#[test]
fn calls_are_counted_when_asked_for() {
    let machine = Machine::new("l4");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    device.name().unwrap();
    assert!(machine.node.state_dir.calls().unwrap().is_empty());
    machine.node.state_dir.control_with(|control| control.call_log = true).unwrap();
    device.name().unwrap();
    device.name().unwrap();
    device.supported_memory_clocks().unwrap_err();
    let calls = machine.node.state_dir.calls().unwrap();
    assert_eq!(calls["nvmlDeviceGetName"], 2);
    assert_eq!(
        calls["nvmlDeviceGetSupportedMemoryClocks"], 1,
        "not modelled, counted all the same"
    );
    assert_eq!(calls.get("nvmlDeviceGetCount_v2"), None);
    drop(nvml);
    machine.nvml();
    assert_eq!(machine.node.state_dir.calls().unwrap()["nvmlInit_v2"], 1);
}

#[test]
fn a_half_written_control_file_changes_nothing() {
    let machine = Machine::new("2xl4");
    let nvml = machine.nvml();
    machine.node.state_dir.control_with(|control| control.no_gpus = true).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 0);
    std::fs::write(machine.node.state_dir.path().join("control.json"), "{\"noGpus\": fal").unwrap();
    assert_eq!(nvml.device_count().unwrap(), 0, "as it was");
    std::fs::write(machine.node.state_dir.path().join("control.json"), "{\"noGpus\": false}")
        .unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
}

#[test]
fn gpus_without_a_node_in_dev_hide_when_asked() {
    let machine = Machine::new("3xl4");
    let nvml = machine.nvml();
    std::fs::remove_file(machine.node.dev_root.join("dev/nvidia1")).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 3);
    machine.node.state_dir.control_with(|control| control.hide_absent_nodes = true).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
}
