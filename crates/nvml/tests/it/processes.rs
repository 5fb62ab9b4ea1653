//! Processes on a GPU, through the C ABI.

use std::time::SystemTime;

use gpu_dra_model::{ComputeInstanceId, GpuInstanceId};
use gpu_dra_nvml::{Code, GpuError, GpuProcess, Gpus as _};
use gpu_dra_sim_data::control::Process;

use crate::node::{Node, first};

const MIB: u64 = 1 << 20;

#[test]
fn each_process_is_told_once_with_what_it_uses() {
    let node = Node::stage("2xl4");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    assert_eq!(driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap(), []);
    node.gpu("0", |gpu| {
        gpu.processes = vec![
            Process { pid: 9, memory_mib: 30, mps: true, sm_percent: 25, ..Process::default() },
            Process {
                pid: 7,
                memory_mib: 500,
                sm_percent: 60,
                memory_percent: 10,
                ..Process::default()
            },
            Process { pid: 8, memory_mib: 1, ..Process::default() },
        ];
    });
    let is = |pid, mib, sm, memory| GpuProcess {
        pid,
        instance: None,
        memory_bytes: Some(mib * MIB),
        sm_percent: Some(sm),
        memory_percent: Some(memory),
    };
    let all = [is(7, 500, 60, 10), is(8, 1, 0, 0), is(9, 30, 25, 0)];
    assert_eq!(driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap(), all);
    let calls =
        node.calls(|| assert_eq!(driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap(), all));
    assert_eq!(calls, 7);

    let none_did_anything = SystemTime::now() + std::time::Duration::from_secs(60);
    let idle = [is(7, 500, 0, 0), is(8, 1, 0, 0), is(9, 30, 0, 0)];
    assert_eq!(driver.processes(&gpu, none_did_anything).unwrap(), idle);
}

#[test]
fn in_mig_mode_the_instance_is_told_and_the_load_is_not() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let process = |pid, instance| Process {
        pid,
        memory_mib: 5,
        gpu_instance: Some(instance),
        compute_instance: Some(0),
        sm_percent: 50,
        ..Process::default()
    };
    node.gpu("0", |gpu| gpu.processes = vec![process(7, 9), process(8, 7), process(7, 11)]);
    let is = |pid, instance| GpuProcess {
        pid,
        instance: Some((GpuInstanceId(instance), ComputeInstanceId(0))),
        memory_bytes: Some(5 * MIB),
        sm_percent: None,
        memory_percent: None,
    };
    let found = driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(found, [is(7, 9), is(7, 11), is(8, 7)]);
}

#[test]
fn a_driver_that_does_not_know_says_nothing_and_one_that_fails_says_so() {
    let node = Node::stage("1xl4");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    node.gpu("0", |gpu| gpu.processes = vec![Process { pid: 7, ..Process::default() }]);
    node.fail("nvmlDeviceGetProcessUtilization", "0", Code::NOT_SUPPORTED.0);
    let told = driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!((told[0].pid, told[0].sm_percent), (7, None));
    node.fail("nvmlDeviceGetComputeRunningProcesses_v3", "0", Code::FUNCTION_NOT_FOUND.0);
    assert_eq!(driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap(), []);
    node.fail("nvmlDeviceGetComputeRunningProcesses_v3", "0", Code::UNKNOWN.0);
    let error = driver.processes(&gpu, SystemTime::UNIX_EPOCH).unwrap_err();
    assert!(matches!(error, GpuError::Call { source, .. } if source.code == Code::UNKNOWN));
}
