//! The DRAPlugin service, v1 and v1beta1, over one [`ClaimService`]. A call is a task of its
//! own: when the kubelet hangs up, its answer is lost but the work is not cut short.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use gpu_dra_model::{ClaimRef, ClaimUid};
use tokio_util::task::TaskTracker;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

use crate::answers::{self, Requested};
use crate::proto::dra_v1 as v1;
use crate::proto::dra_v1::dra_plugin_server::DraPlugin as DraPluginV1;
use crate::proto::dra_v1beta1 as v1beta1;
use crate::proto::dra_v1beta1::dra_plugin_server::DraPlugin as DraPluginV1Beta1;
use crate::service::ClaimService;

/// Both versions of the service.
pub(crate) struct Calls<S> {
    service: Arc<S>,
    running: TaskTracker,
}

impl<S: ClaimService> Calls<S> {
    /// `running` holds every call until its work is done.
    pub(crate) fn new(service: Arc<S>, running: TaskTracker) -> Self {
        Self { service, running }
    }

    async fn prepare(
        &self,
        caller: Caller,
        claims: Vec<v1::Claim>,
    ) -> v1::NodePrepareResourcesResponse {
        let service = Arc::clone(&self.service);
        let work = |claims| async move { service.prepare(claims).await };
        answers::prepared(self.run(caller, "prepare", claims, work).await)
    }

    async fn unprepare(
        &self,
        caller: Caller,
        claims: Vec<v1::Claim>,
    ) -> v1::NodeUnprepareResourcesResponse {
        let service = Arc::clone(&self.service);
        let work = |claims| async move { service.unprepare(claims).await };
        answers::unprepared(self.run(caller, "unprepare", claims, work).await)
    }

    async fn run<T: Send + 'static, F>(
        &self,
        caller: Caller,
        call: &'static str,
        claims: Vec<v1::Claim>,
        work: impl FnOnce(Vec<ClaimRef>) -> F,
    ) -> BTreeMap<String, Result<T, String>>
    where
        F: Future<Output = Vec<(ClaimUid, Result<T, String>)>> + Send + 'static,
    {
        let requested = Requested::read(claims);
        let (count, malformed) = (requested.claims.len(), requested.malformed.len());
        tracing::debug!(
            call,
            pid = caller.pid,
            uid = caller.uid,
            claims = count,
            malformed,
            "called"
        );
        if requested.claims.is_empty() {
            return requested.pair(Some(Vec::new()));
        }
        let work = work(requested.claims.clone());
        let task = self.running.spawn(async move {
            let start = Instant::now();
            let answers = work.await;
            tracing::debug!(call, claims = count, elapsed = ?start.elapsed(), "done");
            answers
        });
        let answers = match task.await {
            Ok(answers) => Some(answers),
            Err(error) => {
                tracing::error!(call, %error, "a call broke off");
                None
            }
        };
        requested.pair(answers)
    }
}

/// The process at the other end, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) pid: Option<i32>,
    pub(crate) uid: Option<u32>,
}

impl Caller {
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let peer =
            request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred.as_ref());
        Self { pid: peer.and_then(|peer| peer.pid()), uid: peer.map(|peer| peer.uid()) }
    }
}

#[tonic::async_trait]
impl<S: ClaimService> DraPluginV1 for Calls<S> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let caller = Caller::of(&request);
        Ok(Response::new(self.prepare(caller, request.into_inner().claims).await))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let caller = Caller::of(&request);
        Ok(Response::new(self.unprepare(caller, request.into_inner().claims).await))
    }
}

#[tonic::async_trait]
impl<S: ClaimService> DraPluginV1Beta1 for Calls<S> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let caller = Caller::of(&request);
        let claims = request.into_inner().claims.into_iter().map(v1::Claim::from).collect();
        Ok(Response::new(self.prepare(caller, claims).await.into()))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let caller = Caller::of(&request);
        let claims = request.into_inner().claims.into_iter().map(v1::Claim::from).collect();
        Ok(Response::new(self.unprepare(caller, claims).await.into()))
    }
}
