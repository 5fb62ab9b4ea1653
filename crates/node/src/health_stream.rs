//! The list of the kubelet's health stream: what GPUs say of themselves, and what has become of
//! the MPS daemons on them. The worse of the two is the device's state, and both are told.

use std::sync::Arc;
use std::time::SystemTime;

use gpu_dra_health::{Report, State};
use gpu_dra_kubelet::{DeviceHealth, HealthState};
use tokio::sync::watch;

use crate::health::{Told, ToldReceiver};
use crate::mps_watch::Troubles;

/// The list, made anew whenever either side has news.
pub(crate) fn healths(
    mut told: ToldReceiver,
    mut troubles: watch::Receiver<Troubles>,
) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
    let (sender, receiver) = watch::channel(Arc::default());
    tokio::spawn(async move {
        loop {
            let now = told.borrow_and_update().clone();
            let wrong = troubles.borrow_and_update().clone();
            if let Some(now) = now {
                sender.send_replace(Arc::new(list(&now, &wrong, SystemTime::now())));
            }
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = troubles.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    receiver
}

fn list(told: &Told, troubles: &Troubles, now: SystemTime) -> Vec<DeviceHealth> {
    let health = |(device, report): (&gpu_dra_model::DeviceName, &Report)| {
        let (state, message) = merged(report, troubles.get(device).map(String::as_str));
        DeviceHealth {
            pool: told.survey.view.pool.clone(),
            device: device.clone(),
            state,
            last_updated: now,
            message,
        }
    };
    told.reports.iter().map(health).collect()
}

fn merged(report: &Report, trouble: Option<&str>) -> (HealthState, String) {
    let state = match (report.state, trouble) {
        (_, Some(_)) | (State::Unhealthy, None) => HealthState::Unhealthy,
        (State::Unknown, None) => HealthState::Unknown,
        (State::Healthy, None) => HealthState::Healthy,
    };
    let told = [report.message.as_str(), trouble.unwrap_or_default()];
    let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty()).collect();
    (state, told.join(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_of_gpu_and_daemon_is_the_state_and_both_are_told() {
        let report =
            |state, message: &str| Report { state, message: message.into(), taints: vec![] };
        let healthy = report(State::Healthy, "");
        let warned = report(State::Healthy, "rows wait");
        let sick = report(State::Unhealthy, "Xid 79");
        let daemon = Some("MPS daemon doesn't serve: killed");
        for (report, trouble, state, message) in [
            (&healthy, None, HealthState::Healthy, ""),
            (&report(State::Unknown, ""), None, HealthState::Unknown, ""),
            (&warned, None, HealthState::Healthy, "rows wait"),
            (&healthy, daemon, HealthState::Unhealthy, "MPS daemon doesn't serve: killed"),
            (&sick, None, HealthState::Unhealthy, "Xid 79"),
            (&sick, daemon, HealthState::Unhealthy, "Xid 79. MPS daemon doesn't serve: killed"),
        ] {
            assert_eq!(merged(report, trouble), (state, message.to_owned()));
        }
    }
}
