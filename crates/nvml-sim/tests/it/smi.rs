//! The stand-in for `nvidia-smi`, run from the driver root as others run it.

use gpu_dra_sim_data::Layout;

use crate::support::Machine;

#[test]
fn it_tells_versions_and_lists_gpus_in_every_layout() {
    for layout in [Layout::Host, Layout::GpuOperator, Layout::Gke] {
        let machine = Machine::with_layout("2xl4:driver=570.124.06", layout);
        let (code, text) = machine.smi(&["--version"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("DRIVER version      : 570.124.06\n"), "{text}");
        assert!(text.contains("CUDA Version        : 12.8\n"), "{text}");
        let node = machine.node.state_dir.node().unwrap();
        let (code, text) = machine.smi(&["-L"]);
        let expected: String = (0..2)
            .map(|nth| format!("GPU {nth}: NVIDIA L4 (UUID: {})\n", node.gpus[nth].uuid))
            .collect();
        assert_eq!((code, text), (0, expected));
    }
}

#[test]
fn the_time_slice_is_kept_where_the_hardware_is() {
    let machine = Machine::new("2xh100");
    let node = machine.node.state_dir.node().unwrap();
    let uuid = &node.gpus[1].uuid;
    let (code, text) = machine.smi(&["compute-policy", "-i", uuid, "--set-timeslice", "3"]);
    assert_eq!(
        (code, text.as_str()),
        (0, "Successfully set timeslice policy with value Long for GPU 1\n")
    );
    let slices = || {
        machine
            .node
            .state_dir
            .state()
            .unwrap()
            .gpus
            .iter()
            .map(|gpu| gpu.time_slice)
            .collect::<Vec<_>>()
    };
    assert_eq!(slices(), [0, 3]);
    let (code, text) = machine.smi(&["compute-policy", "-l", "-i", "1"]);
    assert_eq!(code, 0);
    assert!(text.ends_with("Timeslice : Long\n"), "{text}");
    let (code, _) = machine.smi(&["compute-policy", "-i", uuid, "--set-timeslice=0"]);
    assert_eq!((code, slices()), (0, vec![0, 0]));
    machine.smi(&["compute-policy", "--set-timeslice", "1"]);
    machine.node.state_dir.reboot().unwrap();
    assert_eq!(slices(), [0, 0]);
}

#[test]
fn a_gpu_without_the_knob_refuses_as_the_real_one_does() {
    let machine = Machine::new("p4");
    let (code, text) = machine.smi(&["compute-policy", "-i", "0", "--set-timeslice", "0"]);
    assert_eq!(code, 3);
    assert!(
        text.starts_with(
            "Failed to set timeslice policy with value Default for GPU 0 : Not Supported\n"
        ),
        "{text}"
    );
    assert!(machine.smi(&["compute-policy", "-l"]).1.ends_with("Timeslice : N/A\n"));
}

#[test]
fn it_sets_modes_that_others_see() {
    let machine = Machine::new("2xh100");
    let bus_id = machine.nvml().device_by_index(1).unwrap().pci_info().unwrap().bus_id;
    let (code, text) = machine.smi(&["-i", &bus_id, "-c", "EXCLUSIVE_PROCESS"]);
    assert_eq!(
        (code, text),
        (0, format!("Set compute mode to EXCLUSIVE_PROCESS for GPU {bus_id}.\nAll done.\n"))
    );
    assert_eq!(machine.node.state_dir.state().unwrap().gpus[1].compute_mode, 3);
    let (code, text) = machine.smi(&["-i", "1", "-mig", "1"]);
    assert_eq!((code, text), (0, format!("Enabled MIG Mode for GPU {bus_id}\nAll done.\n")));
    let (code, text) = machine.smi(&["mig", "-lgip", "-i", "1"]);
    assert_eq!(code, 0, "{text}");
    let row = text.lines().find(|line| line.contains("MIG 3g.40gb")).unwrap();
    let columns: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        columns,
        ["|", "1", "MIG", "3g.40gb", "9", "2/2", "39.50", "No", "60", "3", "0", "|"]
    );
    let widths: Vec<_> = text.lines().map(str::len).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    assert_eq!(machine.smi(&["mig", "-lgip", "-i", "0"]).0, 6, "MIG is off there");
    let (code, text) = machine.smi(&["-q", "-i", "0"]);
    assert_eq!(code, 0);
    assert!(text.contains("81559 MiB") && text.contains("GPU UUID"), "{text}");
}

#[test]
fn failures_have_the_exit_codes_of_the_real_program() {
    let machine = Machine::new("l4");
    assert_eq!(machine.smi(&["-i", "5", "-q"]).0, 6);
    assert_eq!(machine.smi(&["--frobnicate"]).0, 2);
    assert_eq!(machine.smi(&["-c"]).0, 2);
    let control =
        |code| machine.node.state_dir.control_with(|control| control.init = Some(code)).unwrap();
    control(9);
    let (code, text) = machine.smi(&["-L"]);
    assert_eq!(code, 9);
    assert!(text.contains("couldn't communicate with the NVIDIA driver"), "{text}");
    control(18);
    let (code, text) = machine.smi(&["-L"]);
    assert_eq!(
        (code, text.as_str()),
        (18, "Failed to initialize NVML: Driver/library version mismatch\n")
    );
    control(0);
    assert_eq!(machine.smi(&["-L"]).0, 0);
}

#[test]
fn programs_without_a_stand_in_say_so() {
    let machine = Machine::new("l4");
    let output = std::process::Command::new(machine.program("nvidia-debugdump")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("simulated"));
}
