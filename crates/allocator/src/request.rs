//! Requests and subrequests, read into one form.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceToleration,
    ExactDeviceRequest,
};

use crate::constraints::For;

/// How many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exactly(usize),
    All,
}

/// A request, or one of its alternatives.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The request that containers and configs name.
    pub(crate) base: &'a str,
    /// The subrequest's own name.
    pub(crate) sub: Option<&'a str>,
    pub(crate) class: &'a str,
    pub(crate) mode: Mode,
    pub(crate) admin: bool,
    pub(crate) selectors: &'a [DeviceSelector],
    pub(crate) tolerations: &'a [DeviceToleration],
    pub(crate) capacity: BTreeMap<String, Quantity>,
}

/// The fields that requests and subrequests have in common.
struct Fields<'a> {
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    selectors: Option<&'a [DeviceSelector]>,
    tolerations: Option<&'a [DeviceToleration]>,
    capacity: Option<&'a CapacityRequirements>,
    derived: bool,
}

impl<'a> Request<'a> {
    /// The alternatives of a request, one for a plain request.
    ///
    /// # Errors
    /// What in it is not supported.
    pub(crate) fn alternatives(request: &'a DeviceRequest) -> Result<Vec<Self>, String> {
        match (&request.exactly, request.first_available.as_deref()) {
            (Some(exactly), None | Some([])) => Ok(vec![Self::exact(&request.name, exactly)?]),
            (None, Some(subs @ [_, ..])) => {
                subs.iter().map(|sub| Self::alternative(&request.name, sub)).collect()
            }
            _ => Err(format!("request {} without exactly or firstAvailable", request.name)),
        }
    }

    fn exact(name: &'a str, exactly: &'a ExactDeviceRequest) -> Result<Self, String> {
        let fields = Fields {
            class: &exactly.device_class_name,
            mode: exactly.allocation_mode.as_deref(),
            count: exactly.count,
            selectors: exactly.selectors.as_deref(),
            tolerations: exactly.tolerations.as_deref(),
            capacity: exactly.capacity.as_ref(),
            derived: exactly.derived_attributes.is_some(),
        };
        Self::read(name, None, &fields, exactly.admin_access == Some(true))
    }

    fn alternative(name: &'a str, sub: &'a DeviceSubRequest) -> Result<Self, String> {
        let fields = Fields {
            class: &sub.device_class_name,
            mode: sub.allocation_mode.as_deref(),
            count: sub.count,
            selectors: sub.selectors.as_deref(),
            tolerations: sub.tolerations.as_deref(),
            capacity: sub.capacity.as_ref(),
            derived: sub.derived_attributes.is_some(),
        };
        Self::read(name, Some(&sub.name), &fields, false)
    }

    fn read(
        base: &'a str,
        sub: Option<&'a str>,
        fields: &Fields<'a>,
        admin: bool,
    ) -> Result<Self, String> {
        let mode = match fields.mode {
            // The API server fills in these two defaults.
            None | Some("" | "ExactCount") => {
                let count = fields.count.filter(|count| *count != 0).unwrap_or(1);
                let count = usize::try_from(count);
                Mode::Exactly(count.map_err(|_| format!("request {base}: a negative count"))?)
            }
            Some("All") => Mode::All,
            Some(other) => return Err(format!("request {base}: allocationMode {other}")),
        };
        if fields.derived {
            return Err(format!("request {base}: derivedAttributes"));
        }
        let mut capacity = BTreeMap::new();
        let requests = fields.capacity.and_then(|capacity| capacity.requests.as_ref());
        for (name, value) in requests.into_iter().flatten() {
            let read = value.0.parse();
            let quantity = read.map_err(|error| format!("request {base}: {name}: {error}"))?;
            capacity.insert(name.clone(), quantity);
        }
        Ok(Self {
            base,
            sub,
            class: fields.class,
            mode,
            admin,
            selectors: fields.selectors.unwrap_or_default(),
            tolerations: fields.tolerations.unwrap_or_default(),
            capacity,
        })
    }

    /// As an allocation result names it: `request` or `request/subrequest`.
    pub(crate) fn full_name(&self) -> String {
        match self.sub {
            Some(sub) => format!("{}/{sub}", self.base),
            None => self.base.to_owned(),
        }
    }

    pub(crate) fn for_constraints(&self) -> For<'a> {
        For { request: self.base, sub: self.sub }
    }
}
