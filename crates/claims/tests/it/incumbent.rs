//! Taking over from NVIDIA's driver: the first tests are named after the files in
//! `tests/data/state` and say what must come of each.

use std::collections::BTreeMap;

use gpu_dra_claims::incumbent::{
    AdoptedMig, Checkpoint, NeedsGpus, Node, Note, Origin, Progress, TakeOver, UNKNOWN_NAMESPACE,
    Unreadable, claim_of_spec, remains, take_over,
};
use gpu_dra_claims::record::{KnownStep, Step};
use gpu_dra_claims::{Allocation, HeldPart, Phase, Record, check};
use gpu_dra_model::config::Interval;
use gpu_dra_model::inventory::{
    ComputeCapability, ComputeInstance, GpuInstance, Mig, MigMode, MigProfile,
};
use gpu_dra_model::{
    BootId, CdiDeviceId, ClaimUid, ComputeInstanceId, ComputeMode, DeviceName, Gpu, GpuInstanceId,
    Inventory, MigUuid, Minor, PciBusId, Placement, PoolName,
};
use gpu_dra_testkit::{claim, claim_uid, driver, gpu_uuid, time_slicing};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

const BOOT: &str = "11111111-2222-3333-4444-555555555555";
const UID: &str = "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01";

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/state/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn mig_uuid(n: u32) -> MigUuid {
    MigUuid::new(format!("MIG-22222222-0000-0000-0000-{n:012x}")).unwrap()
}

/// An A100 or H100 with 1g instances at these memory slices; an instance's UUID is the
/// `10 * GPU + slice`-th.
fn gpu(n: u32, hopper: bool, instances: &[u32]) -> Gpu {
    let placement = |start| Placement { start, size: 1 };
    let profile = MigProfile {
        id: 19,
        name: "1g.5gb".into(),
        slices: 1,
        max_instances: 7,
        memory_mib: 4864,
        multiprocessors: 14,
        copy_engines: 1,
        decoders: 0,
        encoders: 0,
        jpeg_engines: 0,
        ofa_engines: 0,
        placements: (0..7).map(placement).collect(),
    };
    let instance = |start: &u32| GpuInstance {
        id: GpuInstanceId(7 + start),
        profile_id: 19,
        placement: placement(*start),
        compute_instances: vec![ComputeInstance {
            id: ComputeInstanceId(0),
            uuid: mig_uuid(10 * n + start),
            slices: 1,
            multiprocessors: 14,
        }],
    };
    let mode = if instances.is_empty() { MigMode::Disabled } else { MigMode::Enabled };
    Gpu {
        uuid: gpu_uuid(n),
        minor: Minor(n),
        index: n,
        pci_bus_id: PciBusId::new(format!("0000:{n:02x}:00.0")).unwrap(),
        product_name: "NVIDIA A100-SXM4-40GB".into(),
        brand: None,
        architecture: None,
        compute_capability: Some(ComputeCapability { major: if hopper { 9 } else { 8 }, minor: 0 }),
        memory_bytes: Some(40 << 30),
        memory_bus_width_bits: None,
        pcie_root: None,
        numa_node: None,
        addressing_mode: None,
        module_id: None,
        fabric: None,
        vgpu_guest: false,
        mig: Mig::Supported {
            current: mode,
            pending: mode,
            profiles: vec![profile],
            instances: instances.iter().map(instance).collect(),
        },
    }
}

/// The node on which something is taken over, as a test sets it.
struct World {
    boot_id: BootId,
    inventory: Option<Inventory>,
    claims: BTreeMap<ClaimUid, ResourceClaim>,
    origins: BTreeMap<DeviceName, Origin>,
    mig: AdoptedMig,
}

fn world(gpus: Vec<Gpu>) -> World {
    World {
        boot_id: BootId::new(BOOT).unwrap(),
        inventory: Some(Inventory { gpus, ..Inventory::default() }),
        claims: BTreeMap::new(),
        origins: BTreeMap::new(),
        mig: AdoptedMig::Auto,
    }
}

impl World {
    fn take_over(&self, checkpoint: &Checkpoint) -> Result<TakeOver, NeedsGpus> {
        let cdi_device = |uid: &ClaimUid, device: &DeviceName, share: Option<&str>| {
            let share = share.map_or_else(String::new, |share| format!("_{share}"));
            CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={uid}-{device}{share}")).ok()
        };
        let taken = take_over(
            checkpoint,
            &Node {
                driver: &driver(),
                pool: &PoolName::new("node-h100").unwrap(),
                boot_id: &self.boot_id,
                inventory: self.inventory.as_ref(),
                claims: &self.claims,
                origins: &self.origins,
                mig: self.mig,
                cdi_device: &cdi_device,
            },
        )?;
        for record in &taken.records {
            check::plan(record).unwrap();
            assert_eq!(Record::decode(&record.encode().unwrap()).unwrap(), *record);
        }
        check::no_device_in_two_exclusive_claims(&taken.records).unwrap();
        Ok(taken)
    }

    fn of_file(&self, name: &str) -> TakeOver {
        self.take_over(&Checkpoint::read(&file(name)).unwrap()).unwrap()
    }

    fn knows(mut self, device: &str, origin: Origin) -> Self {
        self.origins.insert(DeviceName::new(device).unwrap(), origin);
        self
    }
}

fn known(record: &Record) -> Vec<&KnownStep> {
    record.known_steps().unwrap()
}

/// A completed claim of version 2 with these groups and results.
fn completed(groups: Value, results: Value, configs: Value) -> Checkpoint {
    let file = json!({"v2": {"nodeBootID": BOOT, "preparedClaims": {UID: {
        "checkpointState": "PrepareCompleted", "preparedDevices": groups,
        "status": {"allocation": {"devices": {"results": results, "config": configs}}},
    }}}});
    Checkpoint::read(file.to_string().as_bytes()).unwrap()
}

fn result(request: &str, device: &str) -> Value {
    json!({"request": request, "driver": "gpu.nvidia.com", "pool": "node-h100", "device": device})
}

fn of_gpu(n: u32) -> Value {
    json!({"gpu": {"info": {"uuid": gpu_uuid(n)}, "device": {
        "Requests": ["gpu"], "PoolName": "node-h100", "DeviceName": format!("gpu-{n}"),
        "CDIDeviceIDs": [format!("k8s.gpu.nvidia.com/claim={UID}-gpu-{n}")],
    }}, "mig": null})
}

fn of_mig(n: u32, start: u32) -> Value {
    let device = format!("gpu-{n}-mig-1g5gb-19-{start}");
    json!({"gpu": null, "mig": {
        "concrete": {"parentMinor": n, "giId": 7 + start, "ciId": 0,
            "migUUID": mig_uuid(10 * n + start), "parentUUID": gpu_uuid(n)},
        "device": {"Requests": ["mig"], "PoolName": "node-h100", "DeviceName": device,
            "CDIDeviceIDs": [format!("k8s.gpu.nvidia.com/claim={UID}-{device}")]},
    }})
}

#[test]
fn incumbent_v05() {
    let world = world(vec![]);
    let taken = world.of_file("incumbent-v05.json");
    let [record] = taken.records.as_slice() else { panic!("{:?}", taken.records) };
    assert_eq!((record.phase, record.claim.uid.as_str()), (Phase::Prepared, UID));
    assert_eq!(record.claim.namespace, UNKNOWN_NAMESPACE, "the file has no name of it");
    let [device] = record.devices.as_slice() else { panic!("{:?}", record.devices) };
    assert_eq!(
        (device.device.as_str(), &device.gpu, &device.part, device.requests[0].as_str()),
        ("gpu-1", &gpu_uuid(1), &None, "gpu")
    );
    assert_eq!(device.cdi_device.as_str(), format!("k8s.gpu.nvidia.com/claim={UID}-gpu-1"));
    assert_eq!(record.steps, [], "no device changes");
    assert_eq!(taken.notes, [Note::TakenOver { claims: 1 }]);
    assert_eq!(world.of_file("incumbent-v05.json"), taken, "a second time says the same");
    // Whole GPUs are known by their UUIDs: NVML isn't needed.
    let blind = World { inventory: None, ..world };
    assert_eq!(blind.of_file("incumbent-v05.json"), taken);
}

#[test]
fn incumbent_v05_after_a_reboot() {
    let boot_id = BootId::new("99999999-2222-3333-4444-555555555555").unwrap();
    let world = World { boot_id, ..world(vec![]) };
    let taken = world.of_file("incumbent-v05.json");
    assert_eq!(taken.records, []);
    assert_eq!(taken.notes, [Note::OtherBoot { claims: 1 }]);
}

#[test]
fn incumbent_v05_gets_its_name_from_the_api_server() {
    let mut world = world(vec![]);
    let object =
        json!({"metadata": {"namespace": "team-a", "name": "train", "uid": UID}, "spec": {}});
    world.claims.insert(ClaimUid::new(UID).unwrap(), serde_json::from_value(object).unwrap());
    let taken = world.of_file("incumbent-v05.json");
    assert_eq!(taken.records[0].claim.to_string(), "team-a/train");
}

/// Placement 19/0 on the parent is looked for, the result of driver dra.net is ignored.
#[test]
fn incumbent_prepare_started() {
    for known in [None, Some(Origin::Made)] {
        let mut world = world(vec![gpu(0, false, &[0])]);
        if let Some(origin) = known {
            world = world.knows("gpu-0-mig-1g5gb-19-0", origin);
        }
        let taken = world.of_file("incumbent-prepare-started.json");
        let [record] = taken.records.as_slice() else { panic!("{:?}", taken.records) };
        assert_eq!(record.phase, Phase::Unpreparing, "the claim ends absent");
        assert_eq!(record.claim.to_string(), "team-a/multi-0-mig");
        assert_eq!(record.devices.len(), 1, "{:?}", record.devices);
        assert!(
            matches!(known_step(record), KnownStep::CreatePartition { gpu, partition, made: None, switch_mode: false }
                if *gpu == gpu_uuid(0) && partition.profile_id == 19 && partition.placement.start == 0)
        );
        assert!(matches!(taken.notes[..], [Note::Undone { .. }]), "{:?}", taken.notes);
    }
}

fn known_step(record: &Record) -> &KnownStep {
    let [step] = known(record)[..] else { panic!("{:?}", record.steps) };
    step
}

#[test]
fn incumbent_prepare_started_with_nothing_there() {
    let taken = world(vec![gpu(0, false, &[])]).of_file("incumbent-prepare-started.json");
    assert_eq!(taken, TakeOver::default(), "the claim is absent at once");
}

#[test]
fn incumbent_prepare_started_where_a_completed_claim_owns_the_instance() {
    let mut begun = Checkpoint::read(&file("incumbent-prepare-started.json")).unwrap();
    let owner = completed(
        json!([{"devices": [of_mig(0, 0)]}]),
        json!([result("mig", "gpu-0-mig-1g5gb-19-0")]),
        json!([]),
    );
    let mut owner = owner.entries[0].clone();
    owner.uid = claim_uid(7);
    begun.entries.push(owner);
    for mig in [AdoptedMig::Auto, AdoptedMig::Remove, AdoptedMig::Keep] {
        let world = World { mig, ..world(vec![gpu(0, false, &[0])]) };
        let taken = world.take_over(&begun).unwrap();
        let [record] = taken.records.as_slice() else { panic!("{:?}", taken.records) };
        assert_eq!((record.phase, &record.claim.uid), (Phase::Prepared, &claim_uid(7)));
    }
}

#[test]
fn incumbent_prepare_started_never_takes_what_may_be_an_administrators() {
    let name = "incumbent-prepare-started.json";
    let shown = world(vec![gpu(0, false, &[0])]).knows("gpu-0-mig-1g5gb-19-0", Origin::Found);
    let told = World { mig: AdoptedMig::Keep, ..world(vec![gpu(0, false, &[0])]) };
    // Another instance that no claim knows: somebody makes them by hand on this GPU.
    let strangers = world(vec![gpu(0, false, &[0, 3])]);
    for world in [shown, told, strangers] {
        let taken = world.of_file(name);
        assert_eq!(taken.records, []);
        assert!(matches!(taken.notes[..], [Note::LeftAlone { .. }]), "{:?}", taken.notes);
    }
    let mut odd = Checkpoint::read(&file(name)).unwrap();
    odd.odd.push("x".into());
    assert_eq!(world(vec![gpu(0, false, &[0])]).take_over(&odd).unwrap().records, []);
}

#[test]
fn truncated() {
    let error = Checkpoint::read(&file("truncated.json")).unwrap_err();
    assert!(matches!(error, Unreadable::NoJson(_)), "{error}");
}

#[test]
fn empty_file() {
    assert_eq!(Checkpoint::read(&file("empty-file.json")), Err(Unreadable::Empty));
}

/// As a running 0.5 wrote it.
#[test]
fn incumbent_two_claims() {
    let checkpoint = Checkpoint::read(&file("incumbent-two-claims.json")).unwrap();
    let boot_id = checkpoint.boot_id.clone().unwrap();
    let taken = World { boot_id, ..world(vec![]) }.take_over(&checkpoint).unwrap();
    let held: Vec<_> = taken
        .records
        .iter()
        .flat_map(|record| &record.devices)
        .map(|device| {
            (device.device.as_str(), device.requests[0].as_str(), device.cdi_device.as_str())
        })
        .collect();
    assert_eq!(
        held,
        [
            (
                "gpu-2",
                "container-0-request-0",
                "k8s.gpu.nvidia.com/claim=2aa781d1-0a85-4f60-a593-34888cda7405-gpu-2"
            ),
            (
                "gpu-4",
                "container-0-request-0",
                "k8s.gpu.nvidia.com/claim=2aa781d1-0a85-4f60-a593-34888cda7405-gpu-4"
            ),
            ("gpu-7", "gpu", "k8s.gpu.nvidia.com/claim=3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-7"),
        ]
    );
}

#[test]
fn a_file_of_version_1_is_trusted_for_this_boot() {
    let mut file: Value = serde_json::from_slice(&file("incumbent-v05.json")).unwrap();
    file.as_object_mut().unwrap().remove("v2");
    let checkpoint = Checkpoint::read(file.to_string().as_bytes()).unwrap();
    assert_eq!(checkpoint.entries[0].progress, Progress::Completed);
    assert_eq!(world(vec![]).take_over(&checkpoint).unwrap().records.len(), 1);
}

#[test]
fn a_mig_device_that_it_made_is_removed_with_its_claim() {
    let name = "gpu-0-mig-1g5gb-19-2";
    let of =
        || completed(json!([{"devices": [of_mig(0, 2)]}]), json!([result("mig", name)]), json!([]));
    let shown = world(vec![gpu(0, true, &[2])]).knows(name, Origin::Made);
    let told = World { mig: AdoptedMig::Remove, ..world(vec![gpu(0, true, &[2])]) };
    for world in [shown, told] {
        let taken = world.take_over(&of()).unwrap();
        let record = &taken.records[0];
        assert!(matches!(record.devices[0].part, Some(HeldPart::Partition(_))));
        assert!(
            matches!(known_step(record), KnownStep::CreatePartition { switch_mode: true, made: Some(made), .. }
                if made.uuid == mig_uuid(2) && made.instance == GpuInstanceId(9))
        );
    }
    let shown = world(vec![gpu(0, true, &[2])]).knows(name, Origin::Found);
    let told = World { mig: AdoptedMig::Keep, ..world(vec![gpu(0, true, &[2])]) };
    let unknown = world(vec![gpu(0, true, &[2])]);
    for (world, notes) in [(shown, 1), (told, 1), (unknown, 2)] {
        let taken = world.take_over(&of()).unwrap();
        let record = &taken.records[0];
        assert!(
            matches!(&record.devices[0].part, Some(HeldPart::Static { device, .. }) if device.uuid == mig_uuid(2))
        );
        assert_eq!((record.steps.len(), taken.notes.len()), (0, notes), "{:?}", taken.notes);
    }
}

#[test]
fn a_mig_device_waits_for_nvml_and_one_that_is_gone_is_not_held() {
    let of = completed(
        json!([{"devices": [of_mig(0, 2)]}]),
        json!([result("mig", "gpu-0-mig-1g5gb-19-2")]),
        json!([]),
    );
    let blind = World { inventory: None, ..world(vec![]) };
    assert_eq!(blind.take_over(&of), Err(NeedsGpus));
    // Somebody else's instance is in its place now, with another UUID.
    let mut other = gpu(0, true, &[2]);
    if let Mig::Supported { instances, .. } = &mut other.mig {
        instances[0].compute_instances[0].uuid = mig_uuid(99);
    }
    for gpus in [vec![], vec![gpu(0, true, &[])], vec![other]] {
        let world = World { mig: AdoptedMig::Remove, ..world(gpus) };
        let taken = world.take_over(&of).unwrap();
        assert_eq!(taken.records, []);
        assert!(matches!(taken.notes[..], [Note::NotThere { .. }]), "{:?}", taken.notes);
    }
}

#[test]
fn what_it_set_for_sharing_is_undone_with_the_claim() {
    let slicing = json!([{"source": "FromClaim", "requests": ["gpu"],
        "opaque": {"driver": "gpu.nvidia.com", "parameters": time_slicing("Long")}}]);
    let results = || json!([result("gpu", "gpu-1")]);
    let taken = |state: Value, config: &Value| {
        let group = json!([{"devices": [of_gpu(1)], "configState": state}]);
        world(vec![]).take_over(&completed(group, results(), config.clone())).unwrap()
    };
    let long = [Step::Known(KnownStep::TimeSlice { gpu: gpu_uuid(1), interval: Interval::Long })];
    for (state, config, steps) in [
        (json!({"timeSliceApplied": true}), &slicing, &long[..]),
        (json!({}), &slicing, &long[..]),
        (json!({"timeSliceApplied": false}), &slicing, &[]),
        (json!({}), &json!([]), &[]),
        (json!(null), &json!(null), &[]),
    ] {
        assert_eq!(taken(state.clone(), config).records[0].steps, steps, "{state}");
    }
    let mps = taken(json!({"mpsControlDaemonID": format!("{UID}-0a1b2")}), &json!([]));
    let record = &mps.records[0];
    let exclusive = KnownStep::ExclusiveProcess { gpu: gpu_uuid(1), before: ComputeMode::Default };
    assert_eq!(known_step(record), &exclusive);
    assert_eq!(record.adopted_mps(&record.devices[0]), Some(&*format!("{UID}-0a1b2")));
    let said = mps.notes[1].to_string();
    assert!(said.contains(&format!("mps-control-daemon-{UID}-0a1b2")), "{said}");
}

#[test]
fn a_claim_that_was_begun_with_sharing_is_put_back_unless_another_has_the_gpu() {
    let slicing = json!([{"source": "FromClass", "opaque": {
        "driver": "gpu.nvidia.com", "parameters": time_slicing("Short")}}]);
    let mut begun = completed(json!(null), json!([result("gpu", "gpu-1")]), slicing);
    begun.entries[0].progress = Progress::Started;
    let node = world(vec![gpu(1, false, &[])]);
    let taken = node.take_over(&begun).unwrap();
    assert_eq!(taken.records[0].phase, Phase::Unpreparing);
    assert!(matches!(known_step(&taken.records[0]), KnownStep::TimeSlice { .. }));
    let mut owner = completed(json!([{"devices": [of_gpu(1)]}]), json!([]), json!([])).entries;
    owner[0].uid = claim_uid(9);
    begun.entries.append(&mut owner);
    let taken = node.take_over(&begun).unwrap();
    assert_eq!(taken.records.len(), 1);
    assert_eq!(taken.records[0].phase, Phase::Prepared);
}

#[test]
fn shares_monitors_and_passthrough() {
    let share = |id: &str, memory: &str| {
        json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-h100", "device": "gpu-1",
            "shareID": id, "consumedCapacity": {"memory": memory}})
    };
    let ids = ["a671734a-e8e5-11e4-8fde-42010af09301", "a671734a-e8e5-11e4-8fde-42010af09302"];
    let of = completed(
        json!([{"devices": [of_gpu(1), of_gpu(1)]}]),
        json!([share(ids[0], "4Gi"), share(ids[1], "6Gi")]),
        json!([]),
    );
    let taken = world(vec![]).take_over(&of).unwrap();
    let devices = &taken.records[0].devices;
    let memory: Vec<_> = devices.iter().map(|device| device.share.unwrap().memory_mib).collect();
    assert_eq!(memory, [4096, 6144]);
    assert_ne!(devices[0].cdi_device, devices[1].cdi_device);

    let mut watching = result("gpu", "gpu-1");
    watching["adminAccess"] = true.into();
    let of = completed(json!([{"devices": [of_gpu(1)]}]), json!([watching]), json!([]));
    assert!(world(vec![]).take_over(&of).unwrap().records[0].devices[0].admin);

    let vfio = json!({"vfio": {"info": {"uuid": "x"}, "device": {"DeviceName": "gpu-vfio-0"}}});
    let of =
        completed(json!([{"devices": [vfio]}]), json!([result("gpu", "gpu-vfio-0")]), json!([]));
    let taken = world(vec![]).take_over(&of).unwrap();
    assert_eq!(taken.records, []);
    assert!(matches!(taken.notes[..], [Note::Passthrough { .. }]), "{:?}", taken.notes);
}

/// The spec of the second claim of [`incumbent_two_claims`], as the same 0.5 wrote it.
#[test]
fn a_state_that_is_lost_is_found_in_a_spec_as_it_was_written() {
    let spec = String::from_utf8(file("incumbent-cdi-claim.yaml")).unwrap();
    let uid = ClaimUid::new("3f6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap();
    let found = remains(&[(uid.clone(), spec)], &[]);
    let taken = world(vec![gpu(6, true, &[]), gpu(7, true, &[])]).take_over(&found).unwrap();
    let [record] = taken.records.as_slice() else { panic!("{:?}", taken.records) };
    let [device] = record.devices.as_slice() else { panic!("{record:?}") };
    assert_eq!((device.device.as_str(), &device.gpu), ("gpu-7", &gpu_uuid(7)));
    let known = Checkpoint::read(&file("incumbent-two-claims.json")).unwrap();
    let boot_id = known.boot_id.clone().unwrap();
    let known = World { boot_id, ..world(vec![]) }.take_over(&known).unwrap();
    let known = known.records.iter().find(|known| known.claim.uid == uid).unwrap();
    assert_eq!(device.cdi_device, known.devices[0].cdi_device, "the same either way");
}

/// What truncated and empty files lead to: the CDI specs and the API server say it again.
#[test]
fn a_state_that_is_lost_is_found_in_specs_and_claims() {
    let uid = ClaimUid::new(UID).unwrap();
    assert_eq!(
        claim_of_spec(&driver(), &format!("k8s.gpu.nvidia.com-claim_{UID}.yaml")),
        Some(uid.clone())
    );
    assert_eq!(claim_of_spec(&driver(), &format!("k8s.gpu.nvidia.com-claim_{UID}.json")), None);
    let spec = format!(
        "cdiVersion: 0.5.0\ndevices:\n    - name: {UID}-gpu-1\n      containerEdits:\n        mounts:\n          - hostPath: /x/mps/{UID}-0a1b2/pipe\n    - name: {UID}-gpu-0-mig-1g5gb-19-2\n    - name: \"{UID}-gpu-7\"\n"
    );
    let found = remains(&[(uid.clone(), spec)], &[format!("{UID}-0a1b2"), "x".into()]);
    let mut world = world(vec![gpu(0, true, &[2]), gpu(1, true, &[])]);
    let train = claim("train").gets("gpu", "gpu-1").gets("mig", "gpu-0-mig-1g5gb-19-2").object();
    let mut train: Value = serde_json::to_value(train).unwrap();
    train["metadata"]["uid"] = UID.into();
    world.claims.insert(uid, serde_json::from_value(train).unwrap());
    let taken = world.take_over(&found).unwrap();
    let [record] = taken.records.as_slice() else { panic!("{:?}", taken.records) };
    assert_eq!(record.claim.to_string(), "team-a/train");
    let devices: Vec<_> = record
        .devices
        .iter()
        .map(|device| (device.device.as_str(), device.requests[0].as_str(), &device.gpu))
        .collect();
    assert_eq!(
        devices,
        [("gpu-1", "gpu", &gpu_uuid(1)), ("gpu-0-mig-1g5gb-19-2", "mig", &gpu_uuid(0))]
    );
    assert_eq!(record.adopted.as_ref().unwrap().mps.len(), 1);
    assert!(
        taken.notes.iter().any(
            |note| matches!(note, Note::NotThere { device, .. } if device.as_str() == "gpu-7")
        )
    );
    // Without the API server the names and requests are unknown, the devices are held all the same.
    world.claims.clear();
    let blind = world.take_over(&found).unwrap();
    assert_eq!(blind.records[0].devices.len(), 2);
    assert_eq!(blind.records[0].claim.name, UID);
}

#[test]
fn an_adopted_claim_answers_as_it_is_while_it_has_what_is_allocated() {
    let taken = world(vec![]).of_file("incumbent-v05.json");
    let allocation = |device: &str| {
        let claim = claim("train").gets_from("node-h100", "gpu", device);
        Allocation::of(&claim.object(), &claim.reference(), &driver()).unwrap()
    };
    let record = &taken.records[0];
    assert!(record.is_adopted_as(&allocation("gpu-1")));
    assert!(!record.is_adopted_as(&allocation("gpu-2")));
    assert!(!Record { adopted: None, ..record.clone() }.is_adopted_as(&allocation("gpu-1")));
}

#[test]
fn every_note_is_a_sentence_that_fits_an_event() {
    let claim = taken_claim();
    let device = || DeviceName::new("gpu-0-mig-1g10gb-19-0").unwrap();
    for note in [
        Note::TakenOver { claims: 3 },
        Note::OtherBoot { claims: 3 },
        Note::NotUnderstood { key: "x".repeat(80) },
        Note::NotThere { claim: claim.clone(), device: device() },
        Note::Passthrough { claim: claim.clone(), device: device() },
        Note::OriginUnknown { claim: claim.clone(), device: device(), gpu: gpu_uuid(0) },
        Note::MpsDeployment {
            claim: claim.clone(),
            deployment: format!("mps-control-daemon-{UID}-0a1b2"),
        },
        Note::Undone { claim: claim.clone() },
        Note::LeftAlone { claim, device: device() },
    ] {
        let text = note.to_string();
        assert!(text.len() < 300 && text.contains("NVIDIA") || note.claim().is_some(), "{text}");
    }
}

fn taken_claim() -> gpu_dra_model::ClaimRef {
    claim("train").reference()
}
