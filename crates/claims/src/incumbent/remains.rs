//! Where the incumbent's state file can't be read, its CDI specs and the folders of its MPS
//! daemons still say which claims it has prepared and with what.

use gpu_dra_model::{ClaimUid, DeviceName, DriverName};

use super::checkpoint::{Checkpoint, Entry, Group, Prepared, Progress, What};

/// The claim of a CDI spec of the incumbent's: `k8s.<driver>-claim_<uid>.yaml`.
#[must_use]
pub fn claim_of_spec(driver: &DriverName, file: &str) -> Option<ClaimUid> {
    let uid = file.strip_prefix(&format!("k8s.{driver}-claim_"))?.strip_suffix(".yaml")?;
    ClaimUid::new(uid).ok()
}

/// What is left of the state: `specs` are the claims of its CDI specs with the files' text,
/// `daemons` the names of the folders of MPS daemons, `<claim UID>-<hash>`.
///
/// It knows no boot: the specs lie on a tmpfs, so they are of this one.
#[must_use]
pub fn remains(specs: &[(ClaimUid, String)], daemons: &[String]) -> Checkpoint {
    let entries = specs.iter().map(|(uid, text)| {
        let own = format!("{uid}-");
        let daemon = daemons.iter().find(|daemon| daemon.starts_with(&own)).cloned();
        let group = Group { devices: devices(&own, text), mps: daemon, time_slice: None };
        let uid = uid.clone();
        let progress = Progress::Completed;
        Entry { uid, name: None, progress, status: None, groups: vec![group] }
    });
    Checkpoint { boot_id: None, entries: entries.collect(), odd: Vec::new() }
}

/// The devices that the spec names: `<claim UID>-<device>`, wherever that stands in the text.
fn devices(own: &str, text: &str) -> Vec<Prepared> {
    let mut devices: Vec<Prepared> = Vec::new();
    for (at, _) in text.match_indices(own) {
        let rest = text.get(at + own.len()..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
        let Ok(device) = DeviceName::new(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default())
        else {
            continue;
        };
        // Folders of MPS daemons are called like devices, and stand in mounts.
        if !device.as_str().starts_with("gpu-") || devices.iter().any(|d| d.device == device) {
            continue;
        }
        let (requests, pool, share_id) = (Vec::new(), None, None);
        devices.push(Prepared { what: What::ByName, device, pool, requests, share_id });
    }
    devices
}
