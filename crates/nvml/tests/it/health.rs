//! Health readings: what each kind of GPU says, what it can't, and what it costs.

use gpu_dra_health::{FailedCall, HealthReading, NvLinks, RecoveryAction, RowRemap};
use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::MigMode;
use gpu_dra_nvml::Gpus;
use gpu_dra_sim_data::control::Lost;

use crate::node::{Node, first, uuids};

fn well() -> HealthReading {
    HealthReading {
        lost: Some(false),
        recovery_action: Some(RecoveryAction::Nothing),
        uncorrected_ecc: Some(0),
        row_remap: Some(RowRemap { pending: false, failed: false }),
        retired_pages_pending: None,
        nvlinks: None,
        failed: Vec::new(),
    }
}

#[test]
fn each_kind_of_gpu_says_what_it_has() {
    for (spec, expected, calls) in [
        ("1xh100", HealthReading { nvlinks: Some(NvLinks { up: 18, down: 0 }), ..well() }, 3),
        // Links one by one.
        ("1xa100-80", HealthReading { nvlinks: Some(NvLinks { up: 12, down: 0 }), ..well() }, 21),
        ("1xl4", well(), 2),
        ("1xl4:driver=550.90.07", HealthReading { recovery_action: None, ..well() }, 2),
        (
            "1xp4",
            HealthReading { row_remap: None, retired_pages_pending: Some(false), ..well() },
            2,
        ),
        ("1xgb10", HealthReading { uncorrected_ecc: None, row_remap: None, ..well() }, 2),
    ] {
        let node = Node::stage(spec);
        let driver = node.driver();
        let gpu = first(&driver.probe().unwrap());
        assert_eq!(driver.health(&gpu).unwrap(), expected, "{spec}");
        let made = node.calls(|| assert_eq!(driver.health(&gpu).unwrap(), expected));
        assert_eq!(made, calls, "{spec}");
    }
}

#[test]
fn what_is_wrong_is_read_on_that_gpu_alone() {
    for spec in ["2xh100", "2xa100-80"] {
        let node = Node::stage(spec);
        let driver = node.driver();
        let inventory = driver.probe().unwrap();
        let [sick, other] = &*uuids(&inventory) else { panic!("two GPUs") };
        let before = driver.health(other).unwrap();
        node.gpu(sick.as_str(), |gpu| {
            gpu.recovery_action = 4;
            gpu.ecc.volatile_uncorrected = 7;
            gpu.remapped.pending = true;
            gpu.remapped.failure = true;
            gpu.nvlinks_down = vec![3, 5];
        });
        let links = before.nvlinks.unwrap();
        assert_eq!(
            driver.health(sick).unwrap(),
            HealthReading {
                recovery_action: Some(RecoveryAction::DrainAndReset),
                uncorrected_ecc: Some(7),
                row_remap: Some(RowRemap { pending: true, failed: true }),
                nvlinks: Some(NvLinks { up: links.up - 2, down: 2 }),
                ..before.clone()
            },
            "{spec}"
        );
        assert_eq!(driver.health(other).unwrap(), before, "{spec}");
    }
    let node = Node::stage("1xp4");
    node.gpu("0", |gpu| gpu.retired_pages.pending = true);
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    assert_eq!(driver.health(&gpu).unwrap().retired_pages_pending, Some(true));
}

#[test]
fn links_mean_nothing_in_mig_mode() {
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    node.gpu("0", |gpu| gpu.nvlinks_down = (0..18).collect());
    assert_eq!(driver.health(&gpu).unwrap().nvlinks, Some(NvLinks { up: 0, down: 18 }));
    driver.set_mig_mode(&gpu, MigMode::Enabled).unwrap();
    assert_eq!(driver.health(&gpu).unwrap().nvlinks, None);
}

#[test]
fn a_gpu_that_is_gone_is_lost_and_the_driver_stays_open() {
    let node = Node::stage("2xh100");
    let driver = node.driver();
    let gpus = uuids(&driver.probe().unwrap());
    let unknown = GpuUuid::new("GPU-00000000-0000-0000-0000-000000000000").unwrap();
    assert_eq!(driver.health(&unknown).unwrap().lost, Some(true));
    for lost in [Lost::Error, Lost::Dropped] {
        node.gpu("0", |gpu| gpu.lost = Some(lost));
        let gone = HealthReading { lost: Some(true), ..HealthReading::default() };
        assert_eq!(driver.health(&gpus[0]).unwrap(), gone, "{lost:?}");
        assert_eq!(driver.health(&gpus[1]).unwrap().lost, Some(false), "{lost:?}");
    }
    node.heal();
    // In the midst of a reading.
    node.fail("nvmlDeviceGetFieldValues", "0", 15);
    assert_eq!(driver.health(&gpus[0]).unwrap().lost, Some(true));
    node.heal();
    assert_eq!(driver.health(&gpus[0]).unwrap().lost, Some(false));
    assert!(driver.is_open());
}

#[test]
fn what_cannot_be_asked_is_left_out() {
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    for (code, lost) in [(3, Some(false)), (13, Some(false)), (4, None), (999, None)] {
        node.fail("nvmlDeviceGetFieldValues", "0", code);
        let call = "nvmlDeviceGetFieldValues";
        let failed = if lost.is_none() { vec![FailedCall { call, code }] } else { vec![] };
        let silent = HealthReading { lost, failed, ..HealthReading::default() };
        assert_eq!(silent.is_void(), lost.is_none(), "{code}");
        assert_eq!(driver.health(&gpu).unwrap(), silent, "{code}");
    }
    node.fail("nvmlDeviceGetFieldValues", "0", 16);
    let reset = driver.health(&gpu).unwrap();
    assert_eq!(reset.recovery_action, Some(RecoveryAction::Reset));
    assert!(driver.is_open());
    // The driver was replaced under us.
    node.fail("nvmlDeviceGetFieldValues", "0", 18);
    driver.health(&gpu).unwrap_err();
    assert!(!driver.is_open());
}

#[test]
fn one_question_that_fails_voids_no_other() {
    // Before Hopper links are asked one by one.
    let node = Node::stage("1xa100-80");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    node.gpu("0", |gpu| gpu.recovery_action = 2);
    let links = "nvmlDeviceGetNvLinkState";
    let said = HealthReading {
        recovery_action: Some(RecoveryAction::Reboot),
        failed: vec![FailedCall { call: links, code: 999 }],
        ..well()
    };
    node.fail(links, "0", 999);
    assert_eq!(driver.health(&gpu).unwrap(), said, "links that can't be asked aren't down");
    node.fail(links, "0", 16);
    assert_eq!(driver.health(&gpu).unwrap(), HealthReading { failed: vec![], ..said });
    // The one call that asks for all links, as on Hopper and newer, fails as a whole.
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    node.gpu("0", |gpu| gpu.nvlinks_down = vec![3]);
    node.fail("nvmlDeviceGetMigMode", "0", 999);
    let reading = driver.health(&gpu).unwrap();
    assert_eq!(reading.recovery_action, Some(RecoveryAction::Nothing));
    assert_eq!(reading.nvlinks, Some(NvLinks { up: 17, down: 1 }));
    assert_eq!(reading.failed, [FailedCall { call: "nvmlDeviceGetMigMode", code: 999 }]);
}
