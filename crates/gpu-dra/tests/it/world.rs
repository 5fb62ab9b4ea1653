//! A rig with claims that are allocated without a scheduler, and a picture of everything that
//! a node agent leaves outside its process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpu_dra::rig::{Agent, NODE, Rig};
use gpu_dra_kubelet::PreparedDevice;
use gpu_dra_kubelet::client::Plugin;
use gpu_dra_model::inventory::MigMode;
use gpu_dra_model::{ClaimRef, ClaimUid, ComputeMode, GpuUuid, Placement};
use gpu_dra_nvml::Gpus as _;
use gpu_dra_sim_data::Artifacts;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-dra");

pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) claims: kube::Api<ResourceClaim>,
    pub(crate) slices: kube::Api<ResourceSlice>,
}

/// Files of the journal and of the CDI folder, hidden ones too, and the GPUs' settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outside {
    pub(crate) files: BTreeMap<PathBuf, String>,
    pub(crate) time_slices: Vec<u32>,
    pub(crate) mig: Vec<MigState>,
    pub(crate) compute_modes: Vec<u32>,
    /// Names of the folders of MPS daemons.
    pub(crate) daemons: Vec<String>,
}

/// Whether a GPU's MIG mode is on, and its GPU instances: profile, first memory slice and
/// number of compute instances.
pub(crate) type MigState = (bool, Vec<(u32, u32, usize)>);

impl World {
    pub(crate) async fn new(node: &str) -> Self {
        Artifacts::build_for_tests().unwrap();
        let parts = Path::new(PROGRAM).parent().unwrap();
        assert!(
            parts.join("gpu-dra-hook").is_file(),
            "the container hook isn't built: run cargo xtask build"
        );
        let rig = Rig::start(node, parts).await.unwrap();
        let client = rig.client().await.unwrap();
        let claims = kube::Api::namespaced(client.clone(), "default");
        Self { rig, claims, slices: kube::Api::all(client) }
    }

    /// A running agent, its socket answering.
    pub(crate) async fn agent(&self) -> (Agent, Plugin) {
        self.agent_with(|_| {}).await
    }

    pub(crate) async fn agent_with(
        &self,
        change: impl FnOnce(&mut std::process::Command),
    ) -> (Agent, Plugin) {
        let mut command = self.rig.agent_command(Path::new(PROGRAM));
        change(&mut command);
        let mut agent = self.rig.start_agent(command, "agent.log").unwrap();
        let plugin = self.rig.dial(&mut agent).await.unwrap();
        (agent, plugin)
    }

    /// A claim that is allocated these devices for request `gpu`, with these configs.
    pub(crate) async fn claim(&self, name: &str, devices: &[&str], configs: &[Value]) -> ClaimRef {
        let result = |device: &&str| {
            json!({
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": device,
            })
        };
        let config = |parameters: &Value| {
            json!({
                "source": "FromClaim", "requests": ["gpu"],
                "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters},
            })
        };
        let results: Vec<_> = devices.iter().map(result).collect();
        let configs: Vec<_> = configs.iter().map(config).collect();
        self.claim_with(name, json!({"devices": {"results": results, "config": configs}})).await
    }

    pub(crate) async fn claim_with(&self, name: &str, allocation: Value) -> ClaimRef {
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}},
                {"name": "mig", "exactly": {"deviceClassName": "mig.nvidia.com", "count": 8}},
            ]}},
        });
        let claim = serde_json::from_value(claim).unwrap();
        let mut claim = self.claims.create(&PostParams::default(), &claim).await.unwrap();
        if !allocation.is_null() {
            claim.status = Some(serde_json::from_value(json!({"allocation": allocation})).unwrap());
            claim = self.claims.replace_status(name, &PostParams::default(), &claim).await.unwrap();
        }
        ClaimRef {
            uid: ClaimUid::new(claim.metadata.uid.unwrap()).unwrap(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) async fn delete_claim(&self, claim: &ClaimRef) {
        self.claims.delete(&claim.name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn published(&self) -> Vec<ResourceSlice> {
        self.slices.list(&ListParams::default()).await.unwrap().items
    }

    /// As many slices of one generation as they say that there are.
    pub(crate) async fn is_complete(&self) -> bool {
        let pools: Vec<_> =
            self.published().await.into_iter().map(|slice| slice.spec.pool).collect();
        let Some(first) = pools.first() else { return false };
        usize::try_from(first.resource_slice_count).unwrap() == pools.len()
            && pools.iter().all(|pool| pool.generation == first.generation)
    }

    /// Waits for something the agent does by itself.
    pub(crate) async fn until<F: Future<Output = bool>>(
        &self,
        agent: &mut Agent,
        condition: impl Fn() -> F,
    ) {
        agent.wait_until("what the test waits for", condition).await.unwrap();
    }

    pub(crate) fn outside(&self) -> Outside {
        let mut files = BTreeMap::new();
        for dir in [self.rig.journal(), self.rig.cdi_root.clone()] {
            for entry in std::fs::read_dir(&dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                files.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
            }
        }
        let state = self.rig.staged.state_dir.state().unwrap();
        let time_slices = state.gpus.iter().map(|gpu| gpu.time_slice).collect();
        let mig = state.gpus.iter().map(|gpu| {
            let instances = gpu.instances.iter();
            let instances = instances.map(|i| (i.profile, i.placement.start, i.compute.len()));
            (gpu.mig, instances.collect())
        });
        let mig = mig.collect();
        let compute_modes = state.gpus.iter().map(|gpu| gpu.compute_mode).collect();
        let folders = std::fs::read_dir(self.rig.mps_run_dir()).into_iter().flatten();
        let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut daemons: Vec<_> = names.collect();
        daemons.sort();
        Outside { files, time_slices, mig, compute_modes, daemons }
    }
}

/// Somebody makes a MIG device by hand: a GPU instance and the compute instance that has it.
pub(crate) fn make_foreign(world: &World, gpu: usize, profile_id: u32, placement: (u32, u32)) {
    let (driver, uuid) = by_hand(world, gpu);
    driver.set_mig_mode(&uuid, MigMode::Enabled).unwrap();
    let placement = Placement { start: placement.0, size: placement.1 };
    let instance = driver.create_gpu_instance(&uuid, profile_id, placement).unwrap();
    driver.create_compute_instance(&uuid, instance).unwrap();
}

/// Somebody sets the compute mode by hand.
pub(crate) fn set_compute_mode(world: &World, gpu: usize, mode: ComputeMode) {
    let (driver, uuid) = by_hand(world, gpu);
    driver.set_compute_mode(&uuid, mode).unwrap();
}

fn by_hand(world: &World, gpu: usize) -> (gpu_dra_nvml::Driver, GpuUuid) {
    let staged = &world.rig.staged;
    let library = staged.library.clone();
    let trees = gpu_dra_nvml::Trees {
        sysfs: staged.sysfs_root.clone(),
        proc: staged.proc_root.clone(),
        dev: staged.dev_root.join("dev"),
    };
    let driver = gpu_dra_nvml::Driver::new(move || Ok(library.clone()), trees);
    (driver, GpuUuid::new(&staged.state_dir.node().unwrap().gpus[gpu].uuid).unwrap())
}

pub(crate) async fn prepare(
    plugin: &Plugin,
    claim: &ClaimRef,
) -> Result<Vec<PreparedDevice>, String> {
    let mut answers =
        plugin.prepare(std::slice::from_ref(claim)).await.map_err(|e| e.to_string())?;
    answers.remove(&claim.uid).expect("every claim has an answer")
}

pub(crate) async fn unprepare(plugin: &Plugin, claim: &ClaimRef) -> Result<(), String> {
    let mut answers =
        plugin.unprepare(std::slice::from_ref(claim)).await.map_err(|e| e.to_string())?;
    answers.remove(&claim.uid).expect("every claim has an answer")
}

pub(crate) fn time_slicing(interval: &str) -> Value {
    json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}},
    })
}
