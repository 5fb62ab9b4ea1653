//! NVML's answers: the simulated library makes some of them nonsense (`garbage` in its control
//! file) or errors, and everything that the node agent asks of GPUs is asked, and published.
//!
//! The input is one byte of what to do beside, then one fault for each six bytes. The library
//! is taken from the folder in `GPU_DRA_FUZZ_LIBRARY`.
#![no_main]

mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use gpu_dra_model::inventory::{Mig, Placement};
use gpu_dra_model::{DriverName, GpuUuid, Inventory, NodeName, PoolName, Shares};
use gpu_dra_nvml::{Driver, Gpus, OpenError, Session, Trees, hear};
use gpu_dra_sim_data::control::{Control, EccCounts, Event, Fault, GpuControl, Process};
use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, StagedNode, stage};
use gpu_dra_slices::{
    MigPolicy, Names, Owner, Policy, PoolRef, Write, build, plan_writes, validate, validate_pool,
};
use libfuzzer_sys::fuzz_target;

/// A GPU with a fabric in MIG mode, and one that has neither.
const NODE: &str = "h100:mig=on+1xl4";
/// Faults beyond these are not read: more would leave nothing that answers.
const MOST_FAULTS: usize = 8;
/// No list of the hardware's is longer.
const BOUND: usize = 512;

/// What the agent calls to look, and not to change anything.
const FUNCTIONS: [&str; 48] = [
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait_v2",
    "nvmlGpuInstanceGetInfo",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGet*",
    "nvmlGpuInstance*",
    "nvmlSystemGet*",
    "*",
];

/// What the operator may want published.
const POLICIES: [(MigPolicy, Shares); 4] = [
    (MigPolicy::Dynamic, Shares::Off),
    (MigPolicy::Static, Shares::Off),
    (MigPolicy::Dynamic, Shares::Off),
    (MigPolicy::Off, Shares::Mps),
];

/// Return codes: those that mean something to the agent, and some that don't exist.
const CODES: [u32; 16] = [1, 2, 3, 4, 6, 7, 9, 10, 13, 15, 16, 18, 23, 25, 999, 77];

static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::start);

fuzz_target!(|input: &[u8]| {
    let [beside, faults @ ..] = input else { return };
    let (faults, _) = faults.as_chunks::<6>();
    MACHINE.survey(*beside, faults.iter().take(MOST_FAULTS).map(fault).collect());
});

fn fault([function, gpu, what, times, seed @ ..]: &[u8; 6]) -> Fault {
    let of = |list: &[u32]| list[usize::from(*what) % list.len()];
    // One in four is an error in place of an answer.
    let is_error = what % 4 == 3;
    Fault {
        function: FUNCTIONS[usize::from(*function) % FUNCTIONS.len()].to_owned(),
        gpu: match gpu % 4 {
            0 => Some("0".to_owned()),
            1 => Some("1".to_owned()),
            _ => None,
        },
        error: is_error.then(|| of(&CODES)),
        garbage: (!is_error).then(|| u64::from(u16::from_le_bytes(*seed)) << 8 | u64::from(*what)),
        times: (*times != 0).then(|| (*times).into()),
        ..Fault::default()
    }
}

struct Machine {
    node: StagedNode,
    trees: Trees,
    /// Keeps the library loaded and started over all runs.
    keeper: Session,
    /// The GPUs as they are, for what is asked by UUID.
    real: Vec<GpuUuid>,
}

impl Machine {
    fn start() -> Self {
        let built = std::env::var_os("GPU_DRA_FUZZ_LIBRARY").map(PathBuf::from);
        let built = built.expect("GPU_DRA_FUZZ_LIBRARY is to be the folder of libnvml_sim.so");
        let built = Artifacts::in_folder(&built).expect("libnvml_sim.so has to be built");
        let dir = scratch::folder("nvml");
        let options = StageOptions {
            dir: &dir,
            lib: &built.library,
            programs: None,
            device_nodes: DeviceNodes::PlainFiles,
            layout: Layout::Host,
        };
        let node = stage(&NodeSpec::parse(NODE).expect("a node"), &options).expect("staged");
        let trees = Trees {
            sysfs: node.sysfs_root.clone(),
            proc: node.proc_root.clone(),
            dev: node.dev_root.join("dev"),
        };
        let keeper = Session::open(&node.library, &trees).expect("a session");
        let driver = driver(&node, &trees);
        let found = driver.probe().expect("an inventory");
        partition(&driver, &found);
        let real = found.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        Self { node, trees, keeper, real }
    }

    /// Asks everything, with these faults.
    fn survey(&self, beside: u8, faults: Vec<Fault>) {
        let mut control = control(faults);
        self.write(&control);
        let driver = driver(&self.node, &self.trees);
        match driver.probe() {
            Ok(inventory) => {
                bounded(&inventory);
                let outdated = driver.fingerprint().map(|now| now.outdates(&inventory));
                outdated.unwrap_or_else(|error| {
                    short(&error);
                    false
                });
                publish(&inventory, POLICIES[usize::from(beside >> 2) % POLICIES.len()]);
            }
            Err(error) => short(&error),
        }
        ask(&driver, &self.real[usize::from(beside >> 4) % self.real.len()]);
        driver.close();
        if beside % 4 == 0 {
            let (watching, events) = hear(&self.keeper, || {
                control.events.push(Event::xid("0", 79));
                control.events.push(Event { gpu_instance: Some(7), ..Event::xid("1", 94) });
                self.write(&control);
            });
            assert!(watching.watched.len() + watching.unmonitored.len() < BOUND);
            assert!(events.len() <= control.events.len() * 2);
        }
        // The library sees that no fault is left, so that each run starts alike.
        self.write(&Control::default());
        assert_eq!(self.keeper.device_count().ok(), Some(2), "it answers well again");
    }

    fn write(&self, control: &Control) {
        let written = self.node.state_dir.control_with(|now| *now = control.clone());
        written.expect("there is room in memory");
    }
}

fn driver(node: &StagedNode, trees: &Trees) -> Driver {
    let library = node.library.clone();
    Driver::new(move || Ok(library.clone()), trees.clone())
}

/// One MIG device on the GPU that is in MIG mode.
fn partition(driver: &Driver, found: &Inventory) {
    for gpu in &found.gpus {
        let Mig::Supported { profiles, .. } = &gpu.mig else { continue };
        let Some(profile) = profiles.iter().find(|profile| profile.name == "3g.40gb") else {
            continue;
        };
        let place = Placement { start: 4, size: 4 };
        let instance = driver.create_gpu_instance(&gpu.uuid, profile.id, place).expect("room");
        driver.create_compute_instance(&gpu.uuid, instance).expect("all of it");
    }
}

fn control(faults: Vec<Fault>) -> Control {
    let gpu = GpuControl {
        ecc: EccCounts { volatile_uncorrected: 1, ..EccCounts::default() },
        processes: vec![Process { pid: 4711, memory_mib: 100, ..Process::default() }],
        ..GpuControl::default()
    };
    Control { gpus: BTreeMap::from([("*".to_owned(), gpu)]), faults, ..Control::default() }
}

fn bounded(inventory: &Inventory) {
    assert!(inventory.gpus.len() + inventory.broken.len() < BOUND);
    for broken in &inventory.broken {
        assert!(broken.reason.len() < BOUND, "{}", broken.reason);
    }
    for gpu in &inventory.gpus {
        let Mig::Supported { profiles, instances, .. } = &gpu.mig else { continue };
        assert!(profiles.len() < BOUND && instances.len() < BOUND);
        assert!(profiles.iter().all(|profile| profile.placements.len() < BOUND));
    }
}

/// What is asked of one GPU between two surveys.
fn ask(driver: &Driver, uuid: &GpuUuid) {
    driver.health(uuid).map_or_else(|error| short(&error), drop);
    for error in [
        driver.minor_of(uuid).err(),
        driver.compute_mode(uuid).err(),
        driver.persistence(uuid).err(),
        driver.mig_mode(uuid).err(),
        driver.gpu_instances(uuid).err(),
        driver.processes(uuid, UNIX_EPOCH).err(),
    ] {
        assert!(error.is_none_or(|error| error.to_string().len() < BOUND));
    }
}

fn short(error: &OpenError) {
    assert!(error.to_string().len() < BOUND, "{error}");
}

/// Whatever was found, the API server takes what is made of it.
fn publish(inventory: &Inventory, (mig, shares): (MigPolicy, Shares)) {
    let mut names = Names::default();
    names.assign(inventory);
    let pool = PoolRef {
        driver: DriverName::new("gpu.nvidia.com").expect("a name"),
        node: NodeName::new("node-a").expect("a name"),
        pool: PoolName::new("node-a").expect("a name"),
    };
    let owner = Owner { uid: "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01".to_owned() };
    let policy = Policy { mig, shares, ..Policy::default() };
    let built = build(inventory, &names, &policy, &BTreeSet::new());
    assert_eq!(validate_pool(&built.pool), []);
    assert_eq!(built.pool.devices().count(), built.devices.len(), "each is one thing");
    for write in plan_writes([], &built.pool, &pool, &owner) {
        let Write::Create(slice) = write else { panic!("there was nothing before") };
        assert_eq!(validate(&slice), []);
    }
}
