//! Records of a newer version that this one can't read: nobody knows what they mean, but
//! every GPU that is named in them is taken to be held, so that nothing is given out twice.
//! The file itself is left as it is.

use std::collections::BTreeSet;

use gpu_dra_model::{BootId, CdiDeviceId, ClaimRef, ClaimUid, DeviceName, GpuUuid, PoolName};
use serde_json::{Map, Value};

use crate::record::{HeldDevice, Phase, Record, VERSION};

/// Nesting that a record of ours never has; the reader's own bound is 128.
const DEEPEST: usize = 32;

impl Record {
    /// A stand-in for a record of a newer version; None where the bytes aren't one. It knows
    /// no step ([`Record::known_steps`] is None), so it is neither undone nor written.
    #[must_use]
    pub fn stand_in(uid: &ClaimUid, bytes: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let version = document.get("version")?.as_u64()?;
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        if version <= VERSION {
            return None;
        }
        let name = |field: &str| {
            let text = document.get("claim").and_then(|claim| claim.get(field))?.as_str()?;
            Some(text.to_owned())
        };
        let mut gpus = BTreeSet::new();
        collect(&document, DEEPEST, &mut gpus);
        Some(Self {
            version,
            claim: ClaimRef {
                uid: uid.clone(),
                namespace: name("namespace").unwrap_or_else(|| "?".to_owned()),
                name: name("name").unwrap_or_else(|| uid.to_string()),
            },
            phase: Phase::Prepared,
            boot_id: BootId::new(document.get("bootId")?.as_str()?).ok()?,
            devices: gpus.into_iter().filter_map(|gpu| device(uid, gpu)).collect(),
            steps: Vec::new(),
            adopted: None,
            other: Map::new(),
        })
    }
}

/// All of the GPU.
fn device(uid: &ClaimUid, gpu: GpuUuid) -> Option<HeldDevice> {
    Some(HeldDevice {
        requests: Vec::new(),
        pool: PoolName::new("unknown").ok()?,
        device: DeviceName::new("unknown").ok()?,
        gpu,
        part: None,
        admin: false,
        share_id: None,
        share: None,
        cdi_device: CdiDeviceId::new(format!("unknown/claim={uid}")).ok()?,
    })
}

fn collect(value: &Value, depth: usize, gpus: &mut BTreeSet<GpuUuid>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::String(text) => gpus.extend(GpuUuid::new(text).ok()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, depth - 1, gpus)),
        Value::Object(fields) => {
            for (key, value) in fields {
                gpus.extend(GpuUuid::new(key).ok());
                collect(value, depth - 1, gpus);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
