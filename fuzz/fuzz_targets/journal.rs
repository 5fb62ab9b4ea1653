//! A journal file as a crash, a disk or another version may leave it: read, asked everything
//! that the node agent asks, held against a new claim, written again.
#![no_main]

mod world;

use gpu_dra_claims::{Allocation, Record, check, plan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(record) = Record::decode(input) {
        ask(&record);
        write_again(&record);
        hold_against(&record);
    }
});

fn ask(record: &Record) {
    let known = record.known_steps();
    assert!(known.is_none() || record.plans_the_same(record));
    for step in known.iter().flatten() {
        assert!(record.has_step(step));
    }
    let gpus = record.gpus();
    for device in &record.devices {
        assert!(gpus.contains(&&device.gpu));
        let _ = record.mps_daemon(device);
    }
    // It may break rules: what counts is that it is told.
    let _ = check::plan(record);
    let _ = check::shares_fit(std::slice::from_ref(record), |_| 81559);
    let _ = check::partitions_do_not_overlap(std::slice::from_ref(record));
}

fn write_again(record: &Record) {
    let encoded = record.encode().expect("a record has a JSON form");
    let again = Record::decode(&encoded).expect("what was written can be read");
    assert_eq!(again, *record);
    assert_eq!(again.encode().expect("as before"), encoded);
}

/// Whatever the file says that it holds, no two claims get what excludes each other.
fn hold_against(record: &Record) {
    for device in world::NODE.devices.keys() {
        for result in [world::whole(device.clone()), world::share_of(device.clone())] {
            let allocation =
                Allocation { claim: world::claim(1), devices: vec![result], configs: Vec::new() };
            let Ok(new) = plan(&allocation, &world::NODE, [record], world::cdi_device) else {
                continue;
            };
            let both = [new, record.clone()];
            check::no_device_in_two_exclusive_claims(&both)
                .unwrap_or_else(|broken| panic!("{broken}"));
        }
    }
}
