//! NVIDIA's own Python bindings as a client that we did not write.
//!
//! Needs `python3` with `venv`, and once per target folder a package index to install
//! `nvidia-ml-py` from.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_dra_sim_data::node::{Gpu, Node};
use serde_json::{Value, json};

use crate::support::{Machine, artifacts, finished, skipped, source};

const PACKAGE: &str = "nvidia-ml-py==13.615.71";

/// A Python that has the package, in the target folder; else what is missing.
fn python() -> Result<PathBuf, String> {
    let venv = artifacts().programs.with_file_name("pynvml-venv");
    let python = venv.join("bin/python");
    let installed = venv.join(PACKAGE);
    if installed.is_file() {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{command:?}: {error}")),
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]))?;
    std::fs::write(&installed, "").map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(python)
}

fn enumerate(python: &Path, machine: &Machine) -> Value {
    let output = Command::new(python)
        .arg(source("tests/pynvml_enumerate.py"))
        .env("LD_LIBRARY_PATH", machine.node.library.parent().unwrap())
        .output()
        .unwrap();
    let (code, text) = finished(output);
    assert_eq!(code, 0);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn nvidia_ml_py_sees_what_the_data_says() {
    let python = match python() {
        Ok(python) => python,
        Err(missing) => {
            skipped(&format!(
                "python3 with venv and {PACKAGE} is needed: {}",
                missing.trim().replace("\n", " ")
            ));
            return;
        }
    };
    for spec in [
        "8xa100-80",
        "4xa100-40+2xl4",
        "8xh100:driver=570.124.06",
        "h100-pcie+1xh200+1xb200+1xa30",
        "4xgb200",
        "gb10+1xp4+1xt4+1xl40s+1xa10",
        "2xrtx-pro-6000",
        "2xh100:mig=on",
    ] {
        let machine = Machine::new(spec);
        let node = machine.node.state_dir.node().unwrap();
        let seen = enumerate(&python, &machine);
        assert_eq!(seen["driver"], node.driver.version, "{spec}");
        assert_eq!(seen["nvml"], node.driver.nvml(), "{spec}");
        assert_eq!(seen["cuda"], node.driver.cuda, "{spec}");
        let gpus = seen["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), node.gpus.len(), "{spec}");
        for (index, (seen, gpu)) in gpus.iter().zip(&node.gpus).enumerate() {
            let expected = expected(&node, index, gpu);
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(&seen[key], value, "{spec}, GPU {index}, {key}");
            }
            assert_eq!(
                seen.as_object().unwrap().len(),
                expected.as_object().unwrap().len(),
                "{spec}: every answer is compared"
            );
        }
        let lives = if spec.contains("mig=on") { 2 } else { 0 };
        assert_eq!(seen["migLife"].as_array().unwrap().len(), lives);
        for life in seen["migLife"].as_array().unwrap() {
            assert_eq!(life["id"], 1);
            assert_eq!(life["placement"], json!([4, 4]));
            assert_eq!(life["name"], "NVIDIA H100 80GB HBM3 MIG 3g.40gb");
            assert_eq!(life["multiprocessors"], 60);
            assert_eq!(life["memory"], 40448_u64 << 20);
        }
    }
}

fn expected(node: &Node, index: usize, gpu: &Gpu) -> Value {
    let model = &gpu.model;
    let mib = |size: u64| size << 20;
    let memory = model.memory.map(|memory| {
        let (total, reserved) = (mib(memory.total_mib), mib(memory.reserved_mib));
        (
            json!({"total": total, "free": total - reserved, "used": reserved}),
            json!({"total": total, "reserved": reserved, "free": total - reserved, "used": 0}),
        )
    });
    let (memory, memory_v2) = memory.unzip();
    let mut profiles = serde_json::Map::new();
    for (id, profile) in model.mig.iter().flat_map(|table| &table.profiles) {
        let placements: Vec<_> =
            profile.placements().map(|place| [place.start, place.size]).collect();
        let value = json!({
            "sliceCount": profile.slices,
            "instanceCount": profile.max,
            "multiprocessorCount": profile.multiprocessors,
            "copyEngineCount": profile.copy_engines,
            "decoderCount": profile.decoders,
            "encoderCount": profile.encoders,
            "jpegCount": profile.jpeg_engines,
            "ofaCount": profile.ofa_engines,
            "memorySizeMB": profile.memory_mib,
            "name": format!("MIG {}", profile.name),
            "placements": placements,
        });
        profiles.insert(id.to_string(), value);
    }
    let mig_on = u32::from(gpu.mig_at_start);
    let fabric = gpu.fabric.as_ref().map(|fabric| {
        let cluster = fabric.cluster.replace('-', "");
        json!({"state": 3, "clique": fabric.clique, "cluster": cluster})
    });
    // Before branch 565 drivers had no recovery action.
    let recovery = if node.driver.cuda >= 12070 { json!(0) } else { Value::Null };
    json!({
        "index": index,
        "uuid": gpu.uuid,
        "name": model.name,
        "serial": gpu.serial,
        "brand": model.brand,
        "architecture": model.architecture.nvml(),
        "computeCapability": [model.compute_capability.major, model.compute_capability.minor],
        "minor": gpu.minor,
        "moduleId": gpu.place.module_id,
        "busId": gpu.place.pci.nvml(),
        "pciDeviceId": model.pci.device.0 << 16 | 0x10de,
        "pciSubSystemId": model.pci.subsystem.0 << 16 | 0x10de,
        "memory": memory,
        "memoryV2": memory_v2,
        "bar1": model.bar1_mib.map(|size| json!({"bar1Total": mib(size)})),
        "memoryBusWidth": model.memory_bus_width_bits,
        "addressingMode": model.addressing.map(|mode| mode.nvml()),
        "numaNode": gpu.place.memory_numa_node,
        "virtualization": 0,
        "fabric": fabric,
        "ecc": model.ecc.then_some([1, 1]),
        "eccErrors": model.ecc.then_some(0),
        "remappedRows": model.remap_banks.map(|_| [0; 4]),
        "recoveryAction": recovery,
        "processes": 0,
        "computeMode": 0,
        "migMode": model.mig.as_ref().map(|_| [mig_on, mig_on]),
        "maxMigDevices": model.mig.as_ref().map_or(0, |table| mig_on * table.max_devices),
        "profiles": profiles,
        "uuidGivesIndex": index,
        "busIdGivesIndex": index,
    })
}
