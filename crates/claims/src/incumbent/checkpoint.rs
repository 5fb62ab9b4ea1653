//! The incumbent's `checkpoint.json`, versions 1 and 2 (kubernetes-sigs/dra-driver-nvidia-gpu
//! up to 0.5: `cmd/gpu-kubelet-plugin/checkpointv.go`, `prepared.go`), as far as it says what
//! claims hold.
//!
//! Every part is read by itself: what is missing, null or of another type is left out.

use std::collections::BTreeMap;

use gpu_dra_model::{BootId, ClaimUid, DeviceName, GpuUuid, MigUuid, PoolName};
use k8s_openapi::api::resource::v1::ResourceClaimStatus;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A file that is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// It isn't JSON, perhaps because it was cut off.
    #[error("it is no whole JSON document ({0})")]
    NoJson(String),
    /// It has neither of the versions that are known.
    #[error("it has neither a v1 nor a v2 state")]
    NoKnownVersion,
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checkpoint {
    /// The boot in which it holds; files of version 1 don't say.
    pub boot_id: Option<BootId>,
    /// The claims.
    pub entries: Vec<Entry>,
    /// Keys of claims that are no UID, or in a state that nobody knows.
    pub odd: Vec<String>,
}

/// One claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its UID.
    pub uid: ClaimUid,
    /// Namespace and name; completed claims are written without.
    pub name: Option<(String, String)>,
    /// How far it got.
    pub progress: Progress,
    /// The claim's status when it was prepared.
    pub status: Option<ResourceClaimStatus>,
    /// What was prepared, by the config that it was prepared with.
    pub groups: Vec<Group>,
}

/// How far a claim got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// `PrepareStarted`: anything between nothing and all may be done.
    Started,
    /// `PrepareCompleted`: the kubelet was answered.
    Completed,
}

/// Devices that one config was applied to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The devices.
    pub devices: Vec<Prepared>,
    /// The id of their MPS daemon, `<claim UID>-<hash>`.
    pub mps: Option<String>,
    /// Whether their time slice was set; older versions don't say.
    pub time_slice: Option<bool>,
}

/// One prepared device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// What it is.
    pub what: What,
    /// Its name in the pool.
    pub device: DeviceName,
    /// Its pool.
    pub pool: Option<PoolName>,
    /// The base names of the requests that it serves.
    pub requests: Vec<String>,
    /// Which share of it.
    pub share_id: Option<String>,
}

/// What a prepared device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A whole GPU.
    Gpu(GpuUuid),
    /// A MIG device, whoever made it.
    Mig {
        /// The MIG device.
        uuid: MigUuid,
        /// Its GPU; versions before 25.12 don't say.
        parent: Option<GpuUuid>,
    },
    /// A GPU for a virtual machine.
    Passthrough,
    /// Only the name is known.
    ByName,
}

impl Checkpoint {
    /// Reads the file.
    ///
    /// # Errors
    /// When it is no checkpoint at all.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(Unreadable::Empty);
        }
        let file: Value =
            serde_json::from_slice(bytes).map_err(|error| Unreadable::NoJson(error.to_string()))?;
        let state = |version: &str| file.get(version).filter(|state| state.is_object());
        let newest = state("v2").or_else(|| state("v1")).ok_or(Unreadable::NoKnownVersion)?;
        let mut read = Self { boot_id: part(newest.get("nodeBootID")), ..Self::default() };
        for (key, claim) in
            newest.get("preparedClaims").and_then(Value::as_object).into_iter().flatten()
        {
            match entry(key, claim) {
                Some(entry) => read.entries.push(entry),
                None => read.odd.push(key.chars().take(80).collect()),
            }
        }
        Ok(read)
    }
}

fn entry(key: &str, claim: &Value) -> Option<Entry> {
    let text = |field: &str| part::<String>(claim.get(field)).filter(|text| !text.is_empty());
    let progress = match text("checkpointState").as_deref() {
        Some("PrepareStarted") => Progress::Started,
        // Version 1 has completed claims alone.
        Some("PrepareCompleted") | None => Progress::Completed,
        Some(_) => return None,
    };
    Some(Entry {
        uid: ClaimUid::new(key).ok()?,
        name: text("namespace").zip(text("name")),
        progress,
        status: part(claim.get("status")),
        groups: list(claim.get("preparedDevices")).map(group).collect(),
    })
}

fn group(value: &Value) -> Group {
    let config = value.get("configState");
    let of_config = |field: &str| config.and_then(|config| config.get(field));
    Group {
        devices: list(value.get("devices")).filter_map(prepared).collect(),
        mps: part(of_config("mpsControlDaemonID")).filter(|id: &String| !id.is_empty()),
        time_slice: part(of_config("timeSliceApplied")),
    }
}

fn prepared(value: &Value) -> Option<Prepared> {
    let of = |kind: &str| value.get(kind).filter(|found| found.is_object());
    let gpu = of("gpu").map(|gpu| (gpu, uuid(gpu, "info", "uuid").map(What::Gpu)));
    let mig = || {
        of("mig").map(|mig| {
            // Versions before 25.12 have `info` in place of `concrete`.
            let found = uuid(mig, "concrete", "migUUID").or_else(|| uuid(mig, "info", "uuid"));
            let parent = uuid(mig, "concrete", "parentUUID");
            (mig, found.map(|uuid| What::Mig { uuid, parent }))
        })
    };
    let vfio = || of("vfio").map(|vfio| (vfio, Some(What::Passthrough)));
    let (found, what) = gpu.or_else(mig).or_else(vfio)?;
    let device: BTreeMap<String, Value> = part(found.get("device"))?;
    Some(Prepared {
        what: what.unwrap_or(What::ByName),
        device: part(device.get("DeviceName"))?,
        pool: part(device.get("PoolName")),
        requests: part(device.get("Requests")).unwrap_or_default(),
        share_id: part(device.get("ShareID")),
    })
}

fn uuid<T: DeserializeOwned>(value: &Value, inside: &str, field: &str) -> Option<T> {
    part(value.get(inside)?.get(field))
}

/// The value, if it is there and of the type wanted.
fn part<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    value.and_then(|value| T::deserialize(value).ok())
}

/// What is in a list; null and anything else is an empty one.
fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_checkpoint_is_told_apart() {
        for (bytes, error) in [
            ("", Unreadable::Empty),
            (" \n", Unreadable::Empty),
            ("[]", Unreadable::NoKnownVersion),
            ("{}", Unreadable::NoKnownVersion),
            (r#"{"version":"v9","v9":{}}"#, Unreadable::NoKnownVersion),
        ] {
            assert_eq!(Checkpoint::read(bytes.as_bytes()), Err(error), "{bytes}");
        }
        assert!(matches!(Checkpoint::read(br#"{"v2":"#), Err(Unreadable::NoJson(_))));
    }

    #[test]
    fn one_odd_claim_leaves_the_others() {
        let file = serde_json::json!({"v2": {"nodeBootID": "", "preparedClaims": {
            "../../etc": {"checkpointState": "PrepareCompleted"},
            "0f6c1f3a-2b7e-4c55-9d1f-000000000001": {"checkpointState": "PrepareAborted"},
            "0f6c1f3a-2b7e-4c55-9d1f-000000000002": null,
            "0f6c1f3a-2b7e-4c55-9d1f-000000000003": {
                "checkpointState": "PrepareCompleted", "status": 7,
                "preparedDevices": [null, {"devices": null}, {"devices": [
                    null, {"gpu": null, "mig": null}, {"gpu": {"info": 3, "device": {"DeviceName": "gpu-3"}}},
                ], "configState": {"mpsControlDaemonID": "", "timeSliceApplied": true}}],
            },
        }}});
        let read = Checkpoint::read(file.to_string().as_bytes()).unwrap();
        assert_eq!(read.boot_id, None);
        assert_eq!(read.odd.len(), 2, "{:?}", read.odd);
        let last = read.entries.last().unwrap();
        assert_eq!(last.status, None);
        let group = last.groups.last().unwrap();
        assert_eq!((group.mps.as_ref(), group.time_slice), (None, Some(true)));
        assert_eq!(group.devices.len(), 1);
        assert_eq!(group.devices[0].what, What::ByName);
    }
}
