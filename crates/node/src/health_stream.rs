//! The list of the kubelet's health stream: what GPUs say of themselves, and what has become of
//! the MPS daemons on them. The worse of the two is the device's state, and both are told.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gpu_dra_health::{Report, State};
use gpu_dra_kubelet::{DeviceHealth, HEALTH_TIMEOUT, HealthState};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::crew::Crew;
use crate::health::{Told, ToldReceiver};
use crate::mps_watch::Troubles;

/// Rounds of readings that may fail to come before nobody can say how the GPUs are. By default
/// that is as long as the kubelet waits for a list.
const ROUNDS: u32 = 3;

/// What is told of a GPU that nobody has looked at.
const STALE: &str =
    "GPUs have not been asked for some time: the node agent is held up, see its log";

/// The list, made anew whenever either side has news, or when no round of readings has ended for
/// three times their `interval`, and 30 s at least: the kubelet takes any list for fresh.
pub(crate) fn healths(
    crew: &Crew,
    mut told: ToldReceiver,
    mut troubles: watch::Receiver<Troubles>,
    mut rounds: watch::Receiver<std::time::Instant>,
    interval: Duration,
) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
    let patience = HEALTH_TIMEOUT.max(interval * ROUNDS);
    let (sender, receiver) = watch::channel(Arc::default());
    crew.spawn("telling the kubelet of health", async move {
        let mut last = None;
        loop {
            let now = told.borrow_and_update().clone();
            let wrong = troubles.borrow_and_update().clone();
            let stale_at = Instant::from_std(*rounds.borrow_and_update()) + patience;
            let is_stale = Instant::now() >= stale_at;
            let is_news = last.as_ref() != Some(&(now.clone(), wrong.clone(), is_stale));
            if let Some(told) = now.as_deref().filter(|_| is_news) {
                sender.send_replace(Arc::new(list(told, &wrong, is_stale, SystemTime::now())));
            }
            last = Some((now, wrong, is_stale));
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = troubles.changed() => if changed.is_err() { return },
                changed = rounds.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(stale_at), if !is_stale => {}
                () = sender.closed() => return,
            }
        }
    });
    receiver
}

fn list(told: &Told, troubles: &Troubles, is_stale: bool, now: SystemTime) -> Vec<DeviceHealth> {
    let health = |(device, report): (&gpu_dra_model::DeviceName, &Report)| {
        let (mut state, mut message) = merged(report, troubles.get(device).map(String::as_str));
        if is_stale && state == HealthState::Healthy {
            (state, message) = (HealthState::Unknown, STALE.to_owned());
        }
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
    #[tokio::test(start_paused = true)]
    async fn what_nobody_has_looked_at_for_long_is_unknown_until_it_is_looked_at() {
        let report = |state| Report { state, message: String::new(), taints: vec![] };
        let survey = Arc::new(crate::readiness::tests::survey(None));
        let name = |name| gpu_dra_model::DeviceName::new(name).unwrap();
        let reports = [
            (name("gpu-0"), report(State::Healthy)),
            (name("gpu-1"), Report { message: "Xid 79".into(), ..report(State::Unhealthy) }),
        ];
        let told = Told { pool: Arc::clone(&survey.pool), survey, reports: reports.into() };
        let (_told, receiver) = watch::channel(Some(Arc::new(told)));
        let (_troubles, troubles) = watch::channel(Troubles::new());
        let (round, rounds) = watch::channel(Instant::now().into_std());
        let (crew, _roll) = Crew::new();
        let interval = Duration::from_secs(10);
        let mut list = healths(&crew, receiver, troubles, rounds, interval);
        let mut states = async || {
            let list = list.borrow_and_update().clone();
            list.iter().map(|device| (device.state, device.message.clone())).collect::<Vec<_>>()
        };
        let sick = (HealthState::Unhealthy, "Xid 79".to_owned());
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(states().await, [(HealthState::Healthy, String::new()), sick.clone()]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(states().await, [(HealthState::Unknown, STALE.to_owned()), sick.clone()]);
        round.send_replace(Instant::now().into_std());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(states().await, [(HealthState::Healthy, String::new()), sick]);
    }
}
