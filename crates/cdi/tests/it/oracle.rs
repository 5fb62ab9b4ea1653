//! The Rust CDI library as a judge: its JSON schema, its lowest version, its injection.

use container_device_interface::cache::CdiOption;
use container_device_interface::cache::{new_cache, with_auto_refresh};
use container_device_interface::schema::validate_builtin;
use container_device_interface::spec::parse_spec;
use container_device_interface::spec_dirs::with_spec_dirs;
use container_device_interface::version::minimum_required_version;
use gpu_dra_cdi::{CdiVersion, Spec, device_id, file_name};
use gpu_dra_model::ids::{ClaimUid, DeviceName, DriverName};
use oci_spec::runtime as oci;

use crate::support::{claim, claim_spec, claim_with_letter, common, driver, gpu, mount, node};

/// One spec for each version that our content can need.
fn one_of_each_version() -> Vec<(CdiVersion, Spec<'static>)> {
    let spec = |claim: &ClaimUid, edit: fn(&mut gpu_dra_cdi::ContainerEdits)| {
        let mut device = gpu(0);
        edit(&mut device.edits);
        claim_spec(&driver(), claim, &[device], &common()).unwrap()
    };
    let letter = claim_with_letter();
    let mut dotted = spec(&letter, |_| ());
    dotted.kind = "k8s.gpu.nvidia.com/claim.v2".to_owned();
    dotted.cdi_version = dotted.lowest_version();
    vec![
        (CdiVersion::V0_3, spec(&letter, |_| ())),
        (
            CdiVersion::V0_4,
            spec(&letter, |edits| {
                let mut tmpfs = mount("tmpfs", "/dev/shm");
                tmpfs.fs_type = Some("tmpfs".to_owned());
                edits.mounts.push(tmpfs);
            }),
        ),
        (CdiVersion::V0_5, spec(&claim(), |_| ())),
        (
            CdiVersion::V0_5,
            spec(&letter, |edits| {
                let mut from_elsewhere = node("/dev/nvidia9", 195, 9);
                from_elsewhere.host_path = Some("/run/nvidia/driver/dev/nvidia9".to_owned());
                edits.device_nodes.push(from_elsewhere);
            }),
        ),
        (CdiVersion::V0_6, dotted),
        (CdiVersion::V0_7, spec(&letter, |edits| edits.additional_gids.push(44))),
    ]
}

#[test]
fn every_spec_satisfies_the_schema_and_declares_what_the_library_computes() {
    let dir = tempfile::tempdir().unwrap();
    for (number, (version, spec)) in one_of_each_version().into_iter().enumerate() {
        assert_eq!(spec.cdi_version, version, "spec {number}");
        let bytes = spec.to_bytes().unwrap();
        validate_builtin(&bytes).unwrap();
        let path = dir.path().join(format!("{number}.json"));
        std::fs::write(&path, bytes).unwrap();
        let theirs = parse_spec(&path).unwrap();
        assert_eq!(minimum_required_version(&theirs).unwrap().to_string(), version.to_string());
    }
}

#[test]
fn injection_gives_the_container_its_device_and_not_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let spec = claim_spec(&driver(), &claim(), &[gpu(0), gpu(7)], &common()).unwrap();
    let file = dir.path().join(file_name(&driver(), &claim()));
    std::fs::write(file, spec.to_bytes().unwrap()).unwrap();

    let options: Vec<CdiOption> =
        vec![with_spec_dirs(&[dir.path().to_str().unwrap()]), with_auto_refresh(false)];
    let cache = new_cache(options);
    let mut cache = cache.lock().unwrap();
    cache.refresh().unwrap();
    assert!(cache.get_errors().is_empty(), "{:?}", cache.get_errors());

    let seven = device_id(&driver(), &claim(), &DeviceName::new("gpu-7").unwrap(), None).unwrap();
    let mut container = oci::Spec::default();
    cache.inject_devices(Some(&mut container), vec![seven.to_string()]).unwrap();

    let devices = container.linux().as_ref().unwrap().devices().as_ref().unwrap();
    let mut got: Vec<(String, i64, i64)> = devices
        .iter()
        .map(|device| (device.path().display().to_string(), device.major(), device.minor()))
        .collect();
    got.sort();
    let want = [
        ("/dev/nvidia-uvm", 510, 0),
        ("/dev/nvidia-uvm-tools", 510, 1),
        ("/dev/nvidia7", 195, 7),
        ("/dev/nvidiactl", 195, 255),
    ];
    assert_eq!(got, want.map(|(path, major, minor)| (path.to_owned(), major, minor)));

    let env = container.process().as_ref().unwrap().env().as_ref().unwrap();
    assert!(env.contains(&"NVIDIA_VISIBLE_DEVICES=void".to_owned()));
    let mounts = container.mounts().as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.destination().ends_with("usr/bin/nvidia-smi")));
    let hooks = container.hooks().as_ref().unwrap().create_container().as_ref().unwrap();
    assert!(hooks.iter().any(|hook| hook.path().ends_with("gpu-dra-hook")));
}

/// A host that also carries specs of the NVIDIA toolkit: no name of ours is in conflict
/// with one of theirs, and theirs are not touched.
#[test]
fn p10_lives_beside_the_toolkits_specs() {
    let dir = tempfile::tempdir().unwrap();
    for (file, kind) in [("nvidia.json", "nvidia.com/gpu"), ("m.json", "management.nvidia.com/gpu")]
    {
        let content = format!(
            r#"{{"cdiVersion":"0.5.0","kind":"{kind}","devices":[{{"name":"all","containerEdits":{{"env":["A=1"]}}}}]}}"#
        );
        std::fs::write(dir.path().join(file), content).unwrap();
    }
    let spec = claim_spec(&driver(), &claim(), &[gpu(0)], &common()).unwrap();
    let file = dir.path().join(file_name(&driver(), &claim()));
    std::fs::write(file, spec.to_bytes().unwrap()).unwrap();
    let cache =
        new_cache(vec![with_spec_dirs(&[dir.path().to_str().unwrap()]), with_auto_refresh(false)]);
    let mut cache = cache.lock().unwrap();
    cache.refresh().unwrap();
    assert!(cache.get_errors().is_empty());
    assert_eq!(
        cache.list_devices(),
        [
            "k8s.gpu.nvidia.com/claim=3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-0",
            "management.nvidia.com/gpu=all",
            "nvidia.com/gpu=all"
        ]
    );
}

#[test]
fn another_driver_name_gives_another_vendor() {
    let other = DriverName::new("gpu.example.com").unwrap();
    let spec = claim_spec(&other, &claim(), &[gpu(0)], &common()).unwrap();
    assert_eq!(spec.kind, "k8s.gpu.example.com/claim");
}
