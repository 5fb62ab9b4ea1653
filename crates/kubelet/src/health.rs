//! The DRAResourceHealth service, v1alpha1 and v1 (the same messages): the full list at once,
//! on each change, and again before the kubelet takes it for stale. It must end at once on
//! shutdown, or a graceful stop would wait for it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::calls::Caller;
use crate::proto::health_v1::dra_resource_health_server::DraResourceHealth as HealthV1;
use crate::proto::health_v1alpha1::dra_resource_health_server::DraResourceHealth as HealthV1Alpha1;
use crate::proto::{health_v1 as v1, health_v1alpha1 as v1alpha1};
use crate::service::{ClaimService, DeviceHealth, HEALTH_TIMEOUT, HealthState};

/// After how long the list is sent again although nothing changed. Less than half of
/// [`HEALTH_TIMEOUT`], so that one late message is no stale one.
const RESEND: Duration = Duration::from_secs(10);
const _: () = assert!(RESEND.as_secs() * 2 < HEALTH_TIMEOUT.as_secs());

type List = Arc<Vec<DeviceHealth>>;
type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Both versions of the service.
pub(crate) struct Health<S> {
    service: Arc<S>,
    stop: CancellationToken,
}

impl<S: ClaimService> Health<S> {
    /// All streams end when `stop` is cancelled.
    pub(crate) fn new(service: Arc<S>, stop: CancellationToken) -> Self {
        Self { service, stop }
    }

    fn watch<T: Send + 'static>(
        &self,
        caller: Caller,
        version: &'static str,
        message: fn(&[DeviceHealth]) -> T,
    ) -> Response<ResponseStream<T>> {
        tracing::debug!(version, pid = caller.pid, uid = caller.uid, "health stream opened");
        let lists = lists(self.service.health(), self.stop.clone());
        Response::new(Box::pin(lists.map(move |list| list.map(|list| message(&list)))))
    }
}

/// The lists that one stream carries.
fn lists(
    health: watch::Receiver<List>,
    stop: CancellationToken,
) -> impl Stream<Item = Result<List, Status>> {
    enum Next {
        First,
        Later,
        End,
    }
    futures::stream::unfold((health, stop, Next::First), |(mut health, stop, next)| async move {
        match next {
            Next::End => return None,
            Next::First => {}
            Next::Later => {
                let changed = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    changed = health.changed() => changed.is_ok(),
                    () = tokio::time::sleep(RESEND) => true,
                };
                if !changed {
                    // To repeat old news would be a lie: without a stream the kubelet
                    // takes the devices' health for unknown.
                    let status = Status::unavailable("the node agent no longer watches health");
                    return Some((Err(status), (health, stop, Next::End)));
                }
            }
        }
        let list = Arc::clone(&health.borrow_and_update());
        Some((Ok(list), (health, stop, Next::Later)))
    })
}

fn unix_seconds(device: &DeviceHealth) -> i64 {
    let since = device.last_updated.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The two packages have the same messages as different types.
macro_rules! serve_health {
    ($trait:ident, $package:ident, $version:literal) => {
        #[tonic::async_trait]
        impl<S: ClaimService> $trait for Health<S> {
            type NodeWatchResourcesStream = ResponseStream<$package::NodeWatchResourcesResponse>;

            async fn node_watch_resources(
                &self,
                request: Request<$package::NodeWatchResourcesRequest>,
            ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
                Ok(self.watch(
                    Caller::of(&request),
                    $version,
                    $package::NodeWatchResourcesResponse::from_list,
                ))
            }
        }

        impl $package::NodeWatchResourcesResponse {
            fn from_list(list: &[DeviceHealth]) -> Self {
                let device = |device: &DeviceHealth| $package::DeviceHealth {
                    device: Some($package::DeviceIdentifier {
                        pool_name: device.pool.as_str().into(),
                        device_name: device.device.as_str().into(),
                    }),
                    health: i32::from(match device.state {
                        HealthState::Unknown => $package::HealthStatus::Unknown,
                        HealthState::Healthy => $package::HealthStatus::Healthy,
                        HealthState::Unhealthy => $package::HealthStatus::Unhealthy,
                    }),
                    last_updated_time: unix_seconds(device),
                    health_check_timeout_seconds: HEALTH_TIMEOUT.as_secs().cast_signed(),
                    message: device.message.clone(),
                };
                Self { devices: list.iter().map(device).collect() }
            }
        }
    };
}

serve_health!(HealthV1Alpha1, v1alpha1, "v1alpha1");
serve_health!(HealthV1, v1, "v1");

#[cfg(test)]
mod tests {
    use gpu_dra_model::{DeviceName, PoolName};
    use tokio::time::{Instant, timeout};

    use super::*;

    fn device(state: HealthState) -> List {
        Arc::new(vec![DeviceHealth {
            pool: PoolName::new("node-1").unwrap(),
            device: DeviceName::new("gpu-0").unwrap(),
            state,
            last_updated: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            message: "Xid 79".into(),
        }])
    }

    #[tokio::test(start_paused = true)]
    async fn full_list_at_once_then_on_change_then_every_ten_seconds() {
        let (health, receiver) = watch::channel(device(HealthState::Healthy));
        let mut stream = std::pin::pin!(lists(receiver, CancellationToken::new()));
        let start = Instant::now();
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(first[0].state, HealthState::Healthy);

        health.send_replace(device(HealthState::Unhealthy));
        let changed = stream.next().await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO, "a change is told at once");
        assert_eq!(changed[0].state, HealthState::Unhealthy);

        for round in 1..=3 {
            let again = stream.next().await.unwrap().unwrap();
            assert_eq!(again, changed);
            assert_eq!(start.elapsed(), RESEND * round);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_a_waiting_stream_at_once() {
        let (_health, receiver) = watch::channel(device(HealthState::Healthy));
        let stop = CancellationToken::new();
        let mut stream = std::pin::pin!(lists(receiver, stop.clone()));
        assert!(stream.next().await.is_some());
        stop.cancel();
        let end = timeout(Duration::from_millis(1), stream.next()).await.unwrap();
        assert!(end.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn old_news_are_not_repeated_when_nobody_watches_health_any_more() {
        let (health, receiver) = watch::channel(device(HealthState::Healthy));
        let mut stream = std::pin::pin!(lists(receiver, CancellationToken::new()));
        assert!(stream.next().await.is_some());
        drop(health);
        let status = stream.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(stream.next().await.is_none());
    }

    #[test]
    fn the_message_has_all_fields() {
        let message = v1::NodeWatchResourcesResponse::from_list(&device(HealthState::Unhealthy));
        let sent = &message.devices[0];
        assert_eq!(sent.health(), v1::HealthStatus::Unhealthy);
        assert_eq!(sent.last_updated_time, 1_700_000_000);
        assert_eq!(sent.health_check_timeout_seconds, 30);
        assert_eq!(sent.message, "Xid 79");
        let id = sent.device.clone().unwrap();
        assert_eq!((id.pool_name.as_str(), id.device_name.as_str()), ("node-1", "gpu-0"));

        let mut early = device(HealthState::Unknown).to_vec();
        early[0].last_updated = UNIX_EPOCH - Duration::from_secs(5);
        let message = v1alpha1::NodeWatchResourcesResponse::from_list(&early);
        assert_eq!(message.devices[0].last_updated_time, 0, "before 1970 is no panic");
    }
}
