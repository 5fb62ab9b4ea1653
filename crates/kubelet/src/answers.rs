//! From a kubelet's request to claims, and from our answers to its response. Pure. The rule
//! that is kept here: every UID of the request gets exactly one entry, whatever the claim
//! service answers, and a bad claim spoils none of the others.
//!
//! v1 is the common form; v1beta1 is converted to and from it.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::{ClaimRef, ClaimUid};

use crate::proto::{dra_v1 as v1, dra_v1beta1 as v1beta1};
use crate::service::PreparedDevice;

/// The claims of one request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Requested {
    /// Those that can be worked on, each UID once.
    pub(crate) claims: Vec<ClaimRef>,
    /// The others: the UID as sent, and what is wrong with it.
    pub(crate) malformed: Vec<(String, String)>,
}

impl Requested {
    pub(crate) fn read(claims: Vec<v1::Claim>) -> Self {
        let mut requested = Self::default();
        let mut seen = BTreeSet::new();
        for v1::Claim { namespace, uid, name } in claims {
            if !seen.insert(uid.clone()) {
                continue;
            }
            match ClaimUid::new(&uid) {
                Ok(uid) => requested.claims.push(ClaimRef { uid, namespace, name }),
                Err(error) => {
                    let text = format!("ResourceClaim {namespace}/{name}: {error}");
                    requested.malformed.push((uid, text));
                }
            }
        }
        requested
    }

    /// One entry for each requested UID. `answers` is `None` when the work itself broke.
    pub(crate) fn pair<T>(
        self,
        answers: Option<Vec<(ClaimUid, Result<T, String>)>>,
    ) -> BTreeMap<String, Result<T, String>> {
        let otherwise = match answers {
            Some(_) => "no answer for this claim: a bug in the node agent, see its log",
            None => "internal error in the node agent, see its log; the kubelet tries again",
        };
        let mut entries: BTreeMap<_, _> = self
            .claims
            .iter()
            .map(|claim| {
                (
                    String::from(claim.uid.clone()),
                    Err(format!("ResourceClaim {claim}: {otherwise}")),
                )
            })
            .collect();
        for (uid, answer) in answers.unwrap_or_default() {
            match entries.get_mut(uid.as_str()) {
                Some(entry) => *entry = answer,
                None => tracing::error!(%uid, "an answer for a claim that was not asked for"),
            }
        }
        entries.extend(self.malformed.into_iter().map(|(uid, error)| (uid, Err(error))));
        entries
    }
}

/// The text of an error. An empty one would read as success.
fn error_text(error: String) -> String {
    if error.is_empty() {
        "failed without a reason, see the node agent's log".into()
    } else {
        error
    }
}

pub(crate) fn prepared(
    entries: BTreeMap<String, Result<Vec<PreparedDevice>, String>>,
) -> v1::NodePrepareResourcesResponse {
    let entry = |answer| match answer {
        Ok(devices) => v1::NodePrepareResourceResponse {
            devices: Vec::into_iter(devices).map(device).collect(),
            error: String::new(),
        },
        Err(error) => {
            v1::NodePrepareResourceResponse { devices: Vec::new(), error: error_text(error) }
        }
    };
    v1::NodePrepareResourcesResponse {
        claims: entries.into_iter().map(|(uid, answer)| (uid, entry(answer))).collect(),
    }
}

pub(crate) fn unprepared(
    entries: BTreeMap<String, Result<(), String>>,
) -> v1::NodeUnprepareResourcesResponse {
    let entry = |answer: Result<(), String>| v1::NodeUnprepareResourceResponse {
        error: answer.err().map(error_text).unwrap_or_default(),
    };
    v1::NodeUnprepareResourcesResponse {
        claims: entries.into_iter().map(|(uid, answer)| (uid, entry(answer))).collect(),
    }
}

fn device(device: PreparedDevice) -> v1::Device {
    let mut request_names: Vec<String> = Vec::new();
    for name in &device.request_names {
        // The kubelet compares with base names only.
        if !request_names.iter().any(|known| known == name.base()) {
            request_names.push(name.base().into());
        }
    }
    v1::Device {
        request_names,
        pool_name: device.pool.into(),
        device_name: device.device.into(),
        cdi_device_ids: device.cdi_ids.into_iter().map(String::from).collect(),
        share_id: device.share_id,
    }
}

impl From<v1beta1::Claim> for v1::Claim {
    fn from(v1beta1::Claim { namespace, uid, name }: v1beta1::Claim) -> Self {
        Self { namespace, uid, name }
    }
}

impl From<v1::NodePrepareResourcesResponse> for v1beta1::NodePrepareResourcesResponse {
    fn from(response: v1::NodePrepareResourcesResponse) -> Self {
        let device = |device: v1::Device| v1beta1::Device {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
        };
        let entry = |entry: v1::NodePrepareResourceResponse| v1beta1::NodePrepareResourceResponse {
            devices: entry.devices.into_iter().map(device).collect(),
            error: entry.error,
        };
        Self { claims: response.claims.into_iter().map(|(uid, e)| (uid, entry(e))).collect() }
    }
}

impl From<v1::NodeUnprepareResourcesResponse> for v1beta1::NodeUnprepareResourcesResponse {
    fn from(response: v1::NodeUnprepareResourcesResponse) -> Self {
        let entry = |entry: v1::NodeUnprepareResourceResponse| {
            v1beta1::NodeUnprepareResourceResponse { error: entry.error }
        };
        Self { claims: response.claims.into_iter().map(|(uid, e)| (uid, entry(e))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use gpu_dra_model::{CdiDeviceId, DeviceName, PoolName, RequestName};

    use super::*;

    const A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
    const B: &str = "bbbbbbbb-0000-4000-8000-000000000000";

    fn claim(uid: &str, name: &str) -> v1::Claim {
        v1::Claim { namespace: "team".into(), uid: uid.into(), name: name.into() }
    }

    fn uid(text: &str) -> ClaimUid {
        ClaimUid::new(text).unwrap()
    }

    #[test]
    fn each_uid_gets_one_entry_whatever_is_answered() {
        let asked =
            vec![claim(A, "a"), claim("../../etc", "evil"), claim(B, "b"), claim(A, "again")];
        let requested = Requested::read(asked);
        let names: Vec<_> = requested.claims.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);

        let stranger = "cccccccc-0000-4000-8000-000000000000";
        let entries = requested.pair(Some(vec![(uid(B), Ok(7)), (uid(stranger), Ok(9))]));
        let keys: Vec<_> = entries.keys().map(String::as_str).collect();
        assert_eq!(keys, ["../../etc", A, B]);
        assert_eq!(entries[B], Ok(7));
        let left_out = entries[A].as_ref().unwrap_err();
        assert!(left_out.contains("team/a") && left_out.contains("no answer"), "{left_out}");
        let malformed = entries["../../etc"].as_ref().unwrap_err();
        assert!(malformed.contains("team/evil") && malformed.contains("claim UID"), "{malformed}");
    }

    #[test]
    fn broken_work_fails_every_claim() {
        let entries = Requested::read(vec![claim(A, "a"), claim(B, "b")]).pair::<()>(None);
        assert_eq!(entries.len(), 2);
        assert!(entries.values().all(|e| e.as_ref().unwrap_err().contains("internal error")));
    }

    #[test]
    fn an_error_without_text_is_still_an_error() {
        let entries: BTreeMap<_, _> = [(A.to_owned(), Err(String::new()))].into();
        assert_ne!(unprepared(entries.clone()).claims[A].error, "");
        let entries = entries.into_iter().map(|(k, e)| (k, e.map(|()| Vec::new()))).collect();
        assert_ne!(prepared(entries).claims[A].error, "");
    }

    #[test]
    fn a_device_is_told_with_base_request_names_and_v1beta1_leaves_the_share_out() {
        let names = ["gpu/h100", "gpu/a100", "extra"];
        let device = PreparedDevice {
            request_names: names.map(|name| RequestName::new(name).unwrap()).into(),
            pool: PoolName::new("node-1").unwrap(),
            device: DeviceName::new("gpu-0").unwrap(),
            cdi_ids: vec![CdiDeviceId::new("k8s.gpu.nvidia.com/claim=a-gpu-0").unwrap()],
            share_id: Some("s1".into()),
        };
        let response = prepared([(A.to_owned(), Ok(vec![device]))].into());
        let sent = &response.claims[A].devices[0];
        assert_eq!(sent.request_names, ["gpu", "extra"]);
        assert_eq!(sent.share_id.as_deref(), Some("s1"));
        assert_eq!((sent.pool_name.as_str(), sent.device_name.as_str()), ("node-1", "gpu-0"));
        assert_eq!(sent.cdi_device_ids, ["k8s.gpu.nvidia.com/claim=a-gpu-0"]);

        let old: v1beta1::NodePrepareResourcesResponse = response.clone().into();
        let old = &old.claims[A].devices[0];
        assert_eq!(old.request_names, sent.request_names);
        assert_eq!(old.cdi_device_ids, sent.cdi_device_ids);
    }
}
