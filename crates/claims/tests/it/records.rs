//! The journal's format: what it looks like today, and what other versions may write.

use gpu_dra_claims::{Record, check};
use gpu_dra_testkit::{claim, time_slicing};

use crate::planning::planned;

/// What version 0.1 writes. A change here is a change of format: keep reading the old one.
const FIRST: &str = r#"{"version":1,"claim":{"uid":"0f6c1f3a-2b7e-4c55-9d1f-000000000001","namespace":"team-a","name":"train"},"phase":"preparing","bootId":"11111111-2222-3333-4444-555555555555","devices":[{"requests":["gpu"],"pool":"node-a","device":"gpu-0","gpu":"GPU-11111111-0000-0000-0000-000000000000","cdiDevice":"k8s.gpu.nvidia.com/claim=0f6c1f3a-2b7e-4c55-9d1f-000000000001-gpu-0"}],"steps":[{"step":"timeSlice","gpu":"GPU-11111111-0000-0000-0000-000000000000","interval":"Long"}]}"#;

#[test]
fn the_format_is_the_one_written_down() {
    let claim = claim("train").gets("gpu", "gpu-0").with_config(&[], time_slicing("Long"));
    let record = planned(&claim, &[]).unwrap();
    assert_eq!(String::from_utf8(record.encode().unwrap()).unwrap(), FIRST);
    assert_eq!(Record::decode(FIRST.as_bytes()).unwrap(), record);
}

#[test]
fn fields_of_a_newer_version_are_kept() {
    let newer =
        FIRST.replace(r#""phase":"#, r#""colour":{"a":[1,4.993792096748927e-91]},"phase":"#);
    let record = Record::decode(newer.as_bytes()).unwrap();
    assert!(record.known_steps().is_some(), "what it can do without, it does without");
    let again = String::from_utf8(record.encode().unwrap()).unwrap();
    assert!(again.contains(r#""colour":{"a":[1,4.993792096748927e-91]}"#), "{again}");
}

#[test]
fn steps_of_a_newer_version_are_kept_and_not_undone() {
    for newer in
        [FIRST.replace("timeSlice", "levitate"), FIRST.replace(r#""version":1"#, r#""version":2"#)]
    {
        let record = Record::decode(newer.as_bytes()).unwrap();
        assert_eq!(record.known_steps(), None);
        assert_eq!(record.devices.len(), 1, "its devices still count as held");
        assert_eq!(Record::decode(&record.encode().unwrap()).unwrap(), record);
    }
}

#[test]
fn garbage_is_no_record() {
    let half = &FIRST[..FIRST.len() / 2];
    let escape = FIRST.replace("0f6c1f3a-2b7e-4c55-9d1f-000000000001\",\"name", "../../x\",\"name");
    for garbage in ["", "{}", "[]", "null", "\u{0}\u{0}", half, &escape] {
        assert!(Record::decode(garbage.as_bytes()).is_err(), "{garbage}");
    }
}

#[test]
fn the_checker_sees_what_plans_must_not_do() {
    let long = claim("a").gets("gpu", "gpu-0").with_config(&[], time_slicing("Long"));
    let good = planned(&long, &[]).unwrap();
    check::plan(&good).unwrap();

    let mut foreign = good.clone();
    foreign.devices[0].admin = true;
    check::plan(&foreign).unwrap_err();

    let mut twice = good.clone();
    twice.devices.push(twice.devices[0].clone());
    check::plan(&twice).unwrap_err();

    let other = planned(&claim("b").uid(2).gets("gpu", "gpu-0"), &[]).unwrap();
    check::no_device_in_two_exclusive_claims(&[good, other]).unwrap_err();
}
