//! Event sets by their C functions.

use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::EventSetArg;
use crate::code::{Answer, Code};
use crate::entry::Call;
use crate::events;
use crate::handles::{Thing, handle, thing};

exports! {
    fn nvmlEventSetCreate(set: *mut sys::nvmlEventSet_t) |call| {
        if set.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        set.set(handle(Thing::EventSet(events::create(call))))
    }

    fn nvmlEventSetFree(set: sys::nvmlEventSet_t) |_call| { events::free(number(set)?) }

    fn nvmlDeviceGetSupportedEventTypes(device: sys::nvmlDevice_t, kinds: *mut c_ulonglong) |call| {
        kinds.set(events::supported(call, call.gpu(device)?.1))
    }

    /// All kinds or none: one that the GPU can't raise fails the call and leaves the set as
    /// it was.
    fn nvmlDeviceRegisterEvents(
        device: sys::nvmlDevice_t,
        kinds: c_ulonglong,
        set: sys::nvmlEventSet_t,
    ) |call| {
        let (position, gpu) = call.gpu(device)?;
        let number = number(set)?;
        if kinds & !events::supported(call, gpu) != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        events::register(call, number, position, kinds)
    }

    fn nvmlEventSetWait_v2(
        set: sys::nvmlEventSet_t,
        data: *mut sys::nvmlEventData_t,
        timeout: c_uint,
    ) |call| {
        data.set(next(call, set, timeout)?)
    }

    /// The first version doesn't tell the instances.
    fn nvmlEventSetWait(
        set: sys::nvmlEventSet_t,
        data: *mut sys::nvmlEventData_t,
        timeout: c_uint,
    ) |call| {
        let event = next(call, set, timeout)?;
        data.version().set(event.device)?;
        data.version::<c_ulonglong>().nth(1).write_all(&[event.eventType, event.eventData])
    }
}

fn number(set: EventSetArg) -> Answer<u64> {
    match thing(set.0) {
        Some(Thing::EventSet(number)) => Ok(number),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

fn next(call: &Call, set: EventSetArg, timeout_ms: c_uint) -> Answer<sys::nvmlEventData_t> {
    let event = events::wait(call, number(set)?, Duration::from_millis(timeout_ms.into()))?;
    Ok(sys::nvmlEventData_t {
        device: call.gpu_handle(event.gpu)?,
        eventType: event.kind,
        eventData: event.data,
        gpuInstanceId: event.gpu_instance,
        computeInstanceId: event.compute_instance,
    })
}
