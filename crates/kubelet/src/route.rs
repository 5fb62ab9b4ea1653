//! Several gRPC services on one socket. tonic's own router is axum; four names need no more
//! than a match.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, Either};
use http::{Request, Response};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use crate::calls::Calls;
use crate::health::Health;
use crate::proto::dra_v1::dra_plugin_server::DraPluginServer as DraV1;
use crate::proto::dra_v1beta1::dra_plugin_server::DraPluginServer as DraV1Beta1;
use crate::proto::health_v1::dra_resource_health_server::DraResourceHealthServer as HealthV1;
use crate::proto::health_v1alpha1::dra_resource_health_server::DraResourceHealthServer as HealthV1Alpha1;
use crate::service::ClaimService;

/// Everything that is served on the service socket.
pub(crate) struct ServiceSocket<S> {
    dra_v1: DraV1<Calls<S>>,
    dra_v1beta1: DraV1Beta1<Calls<S>>,
    health_v1: HealthV1<Health<S>>,
    health_v1alpha1: HealthV1Alpha1<Health<S>>,
}

impl<S: ClaimService> ServiceSocket<S> {
    pub(crate) fn new(service: Arc<S>, running: TaskTracker, stop: CancellationToken) -> Self {
        let calls = Arc::new(Calls::new(Arc::clone(&service), running));
        let health = Arc::new(Health::new(service, stop));
        Self {
            dra_v1: DraV1::from_arc(Arc::clone(&calls)),
            dra_v1beta1: DraV1Beta1::from_arc(calls),
            health_v1: HealthV1::from_arc(Arc::clone(&health)),
            health_v1alpha1: HealthV1Alpha1::from_arc(health),
        }
    }
}

// Derived, it would want S: Clone.
impl<S> Clone for ServiceSocket<S> {
    fn clone(&self) -> Self {
        Self {
            dra_v1: self.dra_v1.clone(),
            dra_v1beta1: self.dra_v1beta1.clone(),
            health_v1: self.health_v1.clone(),
            health_v1alpha1: self.health_v1alpha1.clone(),
        }
    }
}

type Answer = Result<Response<Body>, Infallible>;

impl<S: ClaimService> Service<Request<Body>> for ServiceSocket<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Answer>, Ready<Answer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // A path is /<service>/<method>.
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        Either::Left(match service {
            DraV1::<Calls<S>>::NAME => self.dra_v1.call(request),
            DraV1Beta1::<Calls<S>>::NAME => self.dra_v1beta1.call(request),
            HealthV1::<Health<S>>::NAME => self.health_v1.call(request),
            HealthV1Alpha1::<Health<S>>::NAME => self.health_v1alpha1.call(request),
            _ => {
                let status = Status::unimplemented("not a service of this driver");
                return Either::Right(ready(Ok(status.into_http())));
            }
        })
    }
}
