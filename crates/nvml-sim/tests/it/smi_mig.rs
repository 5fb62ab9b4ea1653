//! Instances made and destroyed by hand with the stand-in for `nvidia-smi mig`.

use gpu_dra_sim_data::control::{Fault, GpuControl};

use crate::support::Machine;

fn ok(machine: &Machine, args: &[&str]) -> String {
    let (code, text) = machine.smi(args);
    assert_eq!(code, 0, "{args:?}: {text}");
    text
}

#[test]
fn gpu_instances_come_with_their_compute_instances() {
    let machine = Machine::new("2xh100:mig=on");
    assert_eq!(
        ok(&machine, &["mig", "-i", "1", "-cgi", "9,MIG 2g.20gb:0", "-C"]),
        "Successfully created GPU instance ID  1 on GPU  1 using profile MIG 3g.40gb (ID  9)\n\
         Successfully created compute instance ID  0 on GPU  1 GPU instance ID  1 using profile \
         MIG 3g.40gb (ID  2)\n\
         Successfully created GPU instance ID  3 on GPU  1 using profile MIG 2g.20gb (ID 14)\n\
         Successfully created compute instance ID  0 on GPU  1 GPU instance ID  3 using profile \
         MIG 2g.20gb (ID  1)\n"
    );
    assert_eq!(
        ok(&machine, &["mig", "-lgi"]),
        "\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   1  MIG 2g.20gb         14        3          0:2     |
|   1  MIG 3g.40gb          9        1          4:4     |
+-------------------------------------------------------+
"
    );
    assert_eq!(
        ok(&machine, &["mig", "-lci", "-gi", "1"]),
        "\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   1      1       MIG 3g.40gb          2         0          0:3     |
+--------------------------------------------------------------------+
"
    );
    let listed = ok(&machine, &["-L"]);
    assert_eq!(listed.matches("  MIG ").count(), 2, "{listed}");
    assert_eq!(machine.smi(&["mig", "-i", "0", "-lgi"]).1, "No GPU instances found: Not Found\n");
}

#[test]
fn compute_instances_share_a_gpu_instance() {
    let machine = Machine::new("h100:mig=on");
    ok(&machine, &["mig", "-cgi", "3g.40gb"]);
    let (code, text) = machine.smi(&["mig", "-lci"]);
    assert_eq!((code, text.as_str()), (6, "No compute instances found: Not Found\n"));
    assert_eq!(
        ok(&machine, &["mig", "-cci", "0,1c.3g.40gb", "-gi", "1"]),
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 using profile \
         MIG 1c.3g.40gb (ID  0)\n\
         Successfully created compute instance ID  1 on GPU  0 GPU instance ID  1 using profile \
         MIG 1c.3g.40gb (ID  0)\n"
    );
    let (code, text) = machine.smi(&["mig", "-cci"]);
    assert_eq!(
        (code, text.as_str()),
        (
            23,
            "Unable to create a compute instance on GPU  0 GPU instance ID  1 using profile 2: \
             Insufficient Resources\n\
             Failed to create compute instances: Insufficient Resources\n"
        )
    );
    assert_eq!(
        ok(&machine, &["mig", "-dci", "-ci", "1", "-gi", "1"]),
        "Successfully destroyed compute instance ID  1 from GPU  0 GPU instance ID  1\n"
    );
    assert_eq!(machine.smi(&["mig", "-dci", "-ci", "1"]).0, 6);
    assert_eq!(machine.smi(&["mig", "-cci", "-gi", "5"]).0, 6);
    assert_eq!(machine.smi(&["mig", "-cci", "4g.40gb"]).0, 6, "it's no part of 3g");
}

#[test]
fn what_holds_compute_instances_stays() {
    let machine = Machine::new("h100:mig=on");
    ok(&machine, &["mig", "-cgi", "19:0,19:6", "-C"]);
    let (code, text) = machine.smi(&["mig", "-dgi"]);
    assert_eq!(
        (code, text.as_str()),
        (
            19,
            "Unable to destroy GPU instance ID  7 from GPU  0: In use by another client\n\
             Failed to destroy GPU instances: In use by another client\n"
        )
    );
    let held = |held| {
        let held = GpuControl { instances_held: held, ..GpuControl::default() };
        let control = &machine.node.state_dir;
        control
            .control_with(|control| {
                control.gpus.insert("0".into(), held);
            })
            .unwrap();
    };
    held(true);
    assert_eq!(machine.smi(&["mig", "-dci"]).0, 19);
    held(false);
    ok(&machine, &["mig", "-dci"]);
    assert_eq!(
        ok(&machine, &["mig", "-dgi", "-gi", "13"]),
        "Successfully destroyed GPU instance ID 13 from GPU  0\n"
    );
    ok(&machine, &["mig", "-dgi"]);
    assert!(machine.node.state_dir.state().unwrap().gpus[0].instances.is_empty());
    assert_eq!(machine.smi(&["mig", "-dgi"]).0, 6);
}

#[test]
fn refusals_are_the_drivers() {
    let machine = Machine::new("h100:mig=on+1xl4");
    let (code, text) = machine.smi(&["mig", "-cgi", "0,19"]);
    assert_eq!(
        (code, text.as_str()),
        (
            23,
            "Successfully created GPU instance ID  0 on GPU  0 using profile MIG 7g.80gb (ID  0)\n\
             Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources\n\
             Failed to create GPU instances: Insufficient Resources\n"
        )
    );
    assert_eq!(machine.smi(&["mig", "-cgi", "14:1"]).0, 2, "2g can't start there");
    assert_eq!(machine.smi(&["mig", "-cgi", "8g.1gb"]).0, 6);
    assert_eq!(
        machine.smi(&["mig", "-i", "1", "-cgi", "19"]),
        (6, "No MIG-enabled devices found.\n".to_owned())
    );
    for wrong in [
        &["mig"][..],
        &["mig", "-cgi"],
        &["mig", "-cgi", "9:x"],
        &["mig", "-dgi", "-gi", "one"],
        &["mig", "-lgi", "-lci"],
        &["mig", "-lgi", "-C"],
    ] {
        assert_eq!(machine.smi(wrong).0, 2, "{wrong:?}");
    }
    let fault =
        Fault { function: "nvmlGpuInstanceDestroy".into(), error: Some(15), ..Fault::default() };
    machine.node.state_dir.control_with(|control| control.faults.push(fault)).unwrap();
    let (code, text) = machine.smi(&["mig", "-dgi"]);
    assert_eq!(code, 15);
    assert!(text.ends_with("Failed to destroy GPU instances: GPU is lost\n"), "{text}");
}
