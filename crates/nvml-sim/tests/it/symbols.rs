//! What the library exports.

use std::collections::BTreeSet;

use crate::support::{artifacts, skipped, source};

/// Fields of the bindings' table of functions, which are NVML's names.
fn names_of_the_bindings() -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = std::process::Command::new(cargo)
        .current_dir(source("."))
        .args(["metadata", "--format-version", "1", "--offline"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let manifest = packages
        .iter()
        .find(|package| package["name"] == "nvml-wrapper-sys")
        .and_then(|package| package["manifest_path"].as_str())
        .unwrap();
    let bindings = std::path::Path::new(manifest).with_file_name("src/bindings.rs");
    let text = std::fs::read_to_string(bindings).unwrap();
    let table = text.split("pub struct NvmlLib {").nth(1).unwrap();
    let table = table.split("\n}").next().unwrap();
    table
        .split("pub nvml")
        .skip(1)
        .map(|rest| format!("nvml{}", rest.split(':').next().unwrap().trim()))
        .collect()
}

#[test]
fn every_name_of_the_bindings_and_of_newer_headers_is_exported() {
    let library = artifacts().library;
    // SAFETY: loading runs no code of the library but its initialisers, which do nothing.
    let library = unsafe { libloading::Library::new(library) }.unwrap();
    let bindings = names_of_the_bindings();
    assert!(bindings.len() >= 396, "only {} names found", bindings.len());
    let listed = std::fs::read_to_string(source("names.txt")).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let mut missing = Vec::new();
    for name in bindings.union(&listed) {
        // SAFETY: the symbol is only looked for, never called.
        let symbol = unsafe { library.get::<extern "C" fn()>(name.as_bytes()) };
        if symbol.is_err() {
            missing.push(name.clone());
        }
    }
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(!listed.contains(""), "an empty line would hide a name");
}

#[test]
fn a_name_that_is_not_nvmls_is_not_exported() {
    // SAFETY: as above.
    let library = unsafe { libloading::Library::new(artifacts().library) }.unwrap();
    // SAFETY: as above.
    let symbol = unsafe { library.get::<extern "C" fn()>(b"nvmlDeviceGetNonsense") };
    assert!(symbol.is_err(), "the test above could not fail");
}

#[test]
fn the_soname_is_the_drivers() {
    let library = artifacts().library;
    let output = match std::process::Command::new("readelf").arg("-d").arg(&library).output() {
        Ok(output) => output,
        Err(error) => {
            skipped(&format!("readelf (binutils): {error}"));
            return;
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [libnvidia-ml.so.1]"), "{text}");
}

#[test]
fn what_is_not_modelled_answers_not_supported() {
    let machine = crate::support::Machine::new("t4");
    let nvml = machine.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let answer = device.supported_memory_clocks();
    assert!(matches!(answer, Err(nvml_wrapper::error::NvmlError::NotSupported)), "{answer:?}");
}
