//! The writes: DeviceClasses and statuses by server-side apply under a name of our own, never
//! forced against somebody else's fields, deletes of exactly the object that was seen, and
//! Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::judge::{FIELD_MANAGER, first_manager};
use super::unguarded::{NAMESPACE, event};
use crate::declare::{GROUP, GpuClass, GpuClassStatus, VERSION};
use crate::error::{RequestError, within};

const LIMIT: Duration = Duration::from_secs(30);

/// What became of an apply.
pub(crate) enum Applied {
    /// It is stored like this.
    Stored(Box<DeviceClass>),
    /// At the moment in which it was to be created somebody else's was there; ours was taken
    /// out of it again.
    WasThere(Box<DeviceClass>),
}

/// Writes to the API server.
pub(crate) struct Writer {
    device_classes: Api<DeviceClass>,
    gpu_classes: Api<GpuClass>,
    events: Api<Event>,
}

impl Writer {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            device_classes: Api::all(client.clone()),
            gpu_classes: Api::all(client.clone()),
            events: Api::namespaced(client, NAMESPACE),
        }
    }

    /// Applies a class: to the very object `live`, or as a new one.
    pub(crate) async fn apply(
        &self,
        class: &DeviceClass,
        live: Option<&DeviceClass>,
    ) -> Result<Applied, RequestError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let mut sent = class.clone();
        sent.metadata.uid = live.and_then(|live| live.metadata.uid.clone());
        let stored = self.patch(name, &Patch::Apply(&sent)).await?;
        if live.is_some() || first_manager(&stored).is_none() {
            return Ok(Applied::Stored(Box::new(stored)));
        }
        // Applying nothing gives up every field that we just got.
        let nothing = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": name, "uid": stored.metadata.uid},
        });
        let left = self.patch(name, &Patch::Apply(&nothing)).await?;
        Ok(Applied::WasThere(Box::new(left)))
    }

    async fn patch<P: serde::Serialize + std::fmt::Debug>(
        &self,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<DeviceClass, RequestError> {
        let params = PatchParams::apply(FIELD_MANAGER);
        let request = self.device_classes.patch(name, &params, patch);
        within(LIMIT, "patch", &format!("deviceclass {name}"), request).await
    }

    /// Deletes a class if it is still the object that was seen.
    pub(crate) async fn delete(&self, class: &DeviceClass) -> Result<(), RequestError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions {
            uid: class.metadata.uid.clone(),
            resource_version: class.metadata.resource_version.clone(),
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let request = self.device_classes.delete(name, &params);
        match within(LIMIT, "delete", &format!("deviceclass {name}"), request).await {
            Ok(_) | Err(RequestError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells of a class by an Event; one that is there already is as good.
    pub(crate) async fn event(
        &self,
        class: &DeviceClass,
        message: &str,
        now: &Time,
    ) -> Result<(), RequestError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), dry_run: false };
        let event = event(class, message, now);
        let request = self.events.create(&params, &event);
        match within(LIMIT, "create", &format!("event of deviceclass {name}"), request).await {
            Ok(_) | Err(RequestError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a status; the whole of it is ours.
    pub(crate) async fn status(
        &self,
        class: &GpuClass,
        status: &GpuClassStatus,
    ) -> Result<GpuClass, RequestError> {
        let name = class.name();
        let patch: Value = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "GpuClass",
            "metadata": {"name": name, "uid": class.metadata.uid},
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&patch);
        let request = self.gpu_classes.patch_status(name, &params, &patch);
        within(LIMIT, "patch", &format!("gpuclass {name} status"), request).await
    }
}
