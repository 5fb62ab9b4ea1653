//! Taints of devices, and requests that tolerate them.

use k8s_openapi::api::resource::v1::{Device, DeviceTaint, DeviceToleration};

use crate::reason::Reason;

/// The taints that keep the request off the device. Effects other than NoSchedule and
/// NoExecute keep no one off.
pub(crate) fn preventing<'a>(
    device: &'a Device,
    tolerations: &'a [DeviceToleration],
) -> impl Iterator<Item = &'a DeviceTaint> {
    device.taints.iter().flatten().filter(|taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

pub(crate) fn reason(taint: &DeviceTaint) -> Reason {
    Reason::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    }
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let same_value = || {
        toleration.value.as_deref().unwrap_or_default()
            == taint.value.as_deref().unwrap_or_default()
    };
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref() {
            None | Some("" | "Equal") => same_value(),
            Some("Exists") => true,
            Some(_) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_as_in_kubernetes() {
        let taint = DeviceTaint {
            key: "gpu.nvidia.com/xid".into(),
            value: Some("79".into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        let mut device = Device { taints: Some(vec![taint]), ..Device::default() };
        for (key, operator, value, effect, want) in [
            ("gpu.nvidia.com/xid", "Exists", "", "NoSchedule", true),
            ("gpu.nvidia.com/xid", "Exists", "", "", true),
            ("", "Exists", "", "", true),
            ("gpu.nvidia.com/xid", "Equal", "79", "", true),
            ("gpu.nvidia.com/xid", "", "79", "", true),
            ("gpu.nvidia.com/xid", "Equal", "48", "", false),
            ("gpu.nvidia.com/xid", "", "", "", false),
            ("gpu.nvidia.com/gpu-lost", "Exists", "", "", false),
            ("gpu.nvidia.com/xid", "Exists", "", "NoExecute", false),
            ("gpu.nvidia.com/xid", "Maybe", "", "", false),
        ] {
            let toleration = DeviceToleration {
                key: Some(key.into()),
                operator: Some(operator.into()),
                value: Some(value.into()),
                effect: Some(effect.into()),
                toleration_seconds: None,
            };
            let tolerated = preventing(&device, &[toleration]).next().is_none();
            assert_eq!(tolerated, want, "{key} {operator} {value} {effect}");
        }
        assert_eq!(preventing(&device, &[]).count(), 1);
        for taint in device.taints.iter_mut().flatten() {
            taint.effect = "None".into();
        }
        assert_eq!(preventing(&device, &[]).count(), 0);
    }
}
