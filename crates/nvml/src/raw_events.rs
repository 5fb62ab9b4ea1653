//! NVML's event sets, which the wrapper frees on any failed registration, and whose events it
//! strips of the MIG instance. `unsafe` by the rules of `raw`; nothing here knows what an
//! event means.

use std::ptr;

use gpu_dra_model::{ComputeInstanceId, GpuInstanceId};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallError, Code};
use crate::raw::get;

/// What `nvmlEventData_t` has in place of an instance.
const NO_INSTANCE: u32 = u32::MAX;

/// A set that is freed when it's dropped, before its session ends.
pub(crate) struct EventSet<'n> {
    handle: sys::nvmlEventSet_t,
    nvml: &'n Nvml,
}

/// `nvmlEventData_t`.
pub(crate) struct RawEvent<'n> {
    /// The physical GPU, which may not answer any more.
    pub(crate) device: Device<'n>,
    /// One bit.
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: Option<GpuInstanceId>,
    pub(crate) compute_instance: Option<ComputeInstanceId>,
}

/// `nvmlDeviceGetSupportedEventTypes`.
pub(crate) fn supported(nvml: &Nvml, device: &Device<'_>) -> Result<u64, CallError> {
    let symbol = &nvml.lib().nvmlDeviceGetSupportedEventTypes;
    get("nvmlDeviceGetSupportedEventTypes", symbol, device, 0)
}

/// What tells the handle of a GPU from those of others while its session lasts.
pub(crate) fn address(device: &Device<'_>) -> usize {
    // SAFETY: the handle is only looked at, never used.
    unsafe { device.handle() }.addr()
}

impl<'n> EventSet<'n> {
    /// `nvmlEventSetCreate`.
    pub(crate) fn create(nvml: &'n Nvml) -> Result<Self, CallError> {
        const CALL: &str = "nvmlEventSetCreate";
        let function = nvml.lib().nvmlEventSetCreate.as_ref();
        let function = function.map_err(|_| CallError::missing(CALL))?;
        let mut handle = ptr::null_mut();
        // SAFETY: prototype from the bindings, `handle` is live.
        CallError::check(CALL, unsafe { function(&raw mut handle) })?;
        Ok(Self { handle, nvml })
    }

    /// `nvmlDeviceRegisterEvents`. After [`Code::UNKNOWN`] the set is of no use any more.
    pub(crate) fn register(&self, device: &Device<'_>, kinds: u64) -> Result<(), CallError> {
        const CALL: &str = "nvmlDeviceRegisterEvents";
        let function = self.nvml.lib().nvmlDeviceRegisterEvents.as_ref();
        let function = function.map_err(|_| CallError::missing(CALL))?;
        // SAFETY: prototype from the bindings, handle and set from the same library.
        CallError::check(CALL, unsafe { function(device.handle(), kinds, self.handle) })
    }

    /// `nvmlEventSetWait_v2`: the next event, or None after so many milliseconds.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Result<Option<RawEvent<'n>>, CallError> {
        const CALL: &str = "nvmlEventSetWait_v2";
        let function = self.nvml.lib().nvmlEventSetWait_v2.as_ref();
        let function = function.map_err(|_| CallError::missing(CALL))?;
        let mut data = sys::nvmlEventData_t {
            device: ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        };
        // SAFETY: prototype from the bindings, set from the same library, `data` is live.
        let code = unsafe { function(self.handle, &raw mut data, timeout_ms) };
        match CallError::check(CALL, code) {
            Err(CallError { code: Code::TIMEOUT, .. }) => return Ok(None),
            answer => answer?,
        }
        let some = |id: u32| (id != NO_INSTANCE).then_some(id);
        Ok(Some(RawEvent {
            // SAFETY: the library gave the handle, and the set's session is still open.
            device: unsafe { Device::new(data.device, self.nvml) },
            kind: data.eventType,
            data: data.eventData,
            gpu_instance: some(data.gpuInstanceId).map(GpuInstanceId),
            compute_instance: some(data.computeInstanceId).map(ComputeInstanceId),
        }))
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        if let Ok(free) = &self.nvml.lib().nvmlEventSetFree {
            // SAFETY: prototype from the bindings; the library gave the set, and nobody has
            // it after this.
            let code = unsafe { free(self.handle) };
            if let Err(error) = CallError::check("nvmlEventSetFree", code) {
                tracing::debug!(%error, "an event set was not freed");
            }
        }
    }
}
