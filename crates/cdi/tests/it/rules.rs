//! What is refused before it reaches a node, each with its own error.

use std::borrow::Cow;

use gpu_dra_cdi::{CdiVersion, ContainerEdits, ShareId, Spec, SpecError};

use crate::support::{claim, claim_spec, common, driver, gpu};

fn good() -> Spec<'static> {
    claim_spec(&driver(), &claim(), &[gpu(0)], &common()).unwrap()
}

/// The error of the good spec after one change, which must also be short enough for a
/// kubelet event.
fn refusal(change: fn(&mut Spec<'_>)) -> SpecError {
    let mut spec = good();
    change(&mut spec);
    let error = spec.validate().unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
    error
}

/// Field report K15: two admin requests may name one device; the caller merges them.
#[test]
fn k15_the_same_device_twice_is_refused_with_the_reason() {
    let error = claim_spec(&driver(), &claim(), &[gpu(0), gpu(0)], &common()).unwrap_err();
    assert!(matches!(error, SpecError::DuplicateDevice { .. }));
    assert!(error.to_string().contains("merge the requests"), "{error}");
}

/// Field report K21: two shares of one GPU in one claim are two devices.
#[test]
fn k21_two_shares_of_one_gpu_are_two_devices() {
    let mut devices = [gpu(0), gpu(0)];
    devices[0].share = ShareId::new("11111111-2222-4333-8444-555555555555");
    devices[1].share = ShareId::new("21111111-2222-4333-8444-555555555555");
    let spec = claim_spec(&driver(), &claim(), &devices, &common()).unwrap();
    let names: Vec<_> = spec.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-0_11111111-2222-4333-8444-555555555555",
            "3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-0_21111111-2222-4333-8444-555555555555",
        ]
    );
}

#[test]
fn each_rule_has_its_error() {
    assert!(matches!(refusal(|spec| spec.devices.clear()), SpecError::NoDevices { .. }));
    assert!(matches!(
        refusal(|spec| spec.devices[0].container_edits = Cow::default()),
        SpecError::EmptyDevice { .. }
    ));
    for kind in ["claim", "/claim", "k8s.x/", "8s.x/claim", "k8s.x/claim-"] {
        let mut spec = good();
        spec.kind = kind.to_owned();
        assert!(matches!(spec.validate(), Err(SpecError::BadName { .. })), "{kind}");
    }
    assert!(matches!(
        refusal(|spec| spec.devices[0].name = "a/b".to_owned()),
        SpecError::BadName { what: "device name", .. }
    ));
    for entry in ["NAME", "=x", ""] {
        let mut spec = good();
        spec.container_edits.to_mut().env = vec![entry.to_owned()];
        assert!(matches!(spec.validate(), Err(SpecError::BadEnv { .. })), "{entry}");
    }
    assert!(matches!(
        refusal(|spec| {
            spec.container_edits.to_mut().device_nodes[0].permissions = Some("rx".to_owned());
        }),
        SpecError::BadPermissions { .. }
    ));
    assert!(matches!(
        refusal(|spec| spec.cdi_version = CdiVersion::V0_3),
        SpecError::VersionTooLow { declared: CdiVersion::V0_3, needed: CdiVersion::V0_5 }
    ));
}

#[test]
fn relative_paths_are_refused_wherever_they_stand() {
    let changes: [fn(&mut ContainerEdits); 5] = [
        |edits| edits.device_nodes[0].path = "dev/nvidia0".to_owned(),
        |edits| edits.device_nodes[0].host_path = Some(String::new()),
        |edits| edits.mounts[0].host_path = "lib".to_owned(),
        |edits| edits.mounts[0].container_path = "/lib\0".to_owned(),
        |edits| edits.hooks[0].path = "gpu-dra-hook".to_owned(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut spec = good();
        change(spec.container_edits.to_mut());
        assert!(matches!(spec.validate(), Err(SpecError::BadPath { .. })), "change {number}");
    }
}
