//! The health stream over the socket. Times are tested beside the code, on a paused clock.

use std::pin::pin;
use std::time::{Duration, UNIX_EPOCH};

use futures::{Stream, StreamExt as _};
use gpu_dra_kubelet::client::{CallError, DraApi, HealthApi};
use gpu_dra_kubelet::{DeviceHealth, HealthState, Stopped};

use crate::support::{Claims, Root, claim, health, soon};

type Item = Result<Vec<DeviceHealth>, CallError>;

async fn next(stream: &mut (impl Stream<Item = Item> + Unpin)) -> Vec<DeviceHealth> {
    soon(stream.next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn several_streams_get_the_full_list_and_each_change_beside_calls() {
    let root = Root::new();
    let claims = Claims::quick();
    let server = root.start(&claims).await;
    let plugin = root.dial(DraApi::V1);
    let mut old = pin!(plugin.watch_health(HealthApi::V1Alpha1).await.unwrap());
    let mut new = pin!(plugin.watch_health(HealthApi::V1).await.unwrap());
    let healthy = health(HealthState::Healthy);
    assert_eq!(next(&mut old).await, *healthy);
    assert_eq!(next(&mut new).await, *healthy);
    assert_eq!(healthy[0].last_updated, UNIX_EPOCH + Duration::from_secs(1_700_000_000));

    for state in [HealthState::Unhealthy, HealthState::Unknown, HealthState::Healthy] {
        claims.health.send_replace(health(state));
        assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);
        assert_eq!(next(&mut old).await, *health(state));
        assert_eq!(next(&mut new).await, *health(state));
    }

    // A late one, over a connection of its own.
    let late = root.dial(DraApi::V1Beta1);
    let mut late = pin!(late.watch_health(HealthApi::V1Alpha1).await.unwrap());
    assert_eq!(next(&mut late).await, *healthy);
    drop(server);
}

#[tokio::test]
async fn streams_end_with_the_server_and_do_not_hold_it_up() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let plugin = root.dial(DraApi::V1);
    let mut streams = Vec::new();
    for api in [HealthApi::V1Alpha1, HealthApi::V1, HealthApi::V1] {
        let mut stream = Box::pin(plugin.watch_health(api).await.unwrap());
        assert_eq!(next(&mut stream).await.len(), 2);
        streams.push(stream);
    }
    let start = std::time::Instant::now();
    assert_eq!(soon(server.stop(Duration::from_secs(15))).await, Stopped::Drained);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    for mut stream in streams {
        assert!(soon(stream.next()).await.is_none(), "a clean end");
    }
}
