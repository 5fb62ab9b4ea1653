//! The MIG and event functions that nvml-wrapper leaves out, by their return codes.

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

pub(crate) const OK: u32 = 0;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const TIMEOUT: u32 = 10;
pub(crate) const GPU_IS_LOST: u32 = 15;
pub(crate) const IN_USE: u32 = 19;
pub(crate) const INSUFFICIENT_RESOURCES: u32 = 23;
pub(crate) const VERSION_MISMATCH: u32 = 25;

/// Calls a function of the library by name.
///
/// Every call site passes null or pointers to its own locals, of the types that the bindings
/// demand, and handles that the library gave: that is the whole contract.
macro_rules! call {
    ($nvml:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: see the macro's own words.
        unsafe { $nvml.lib().$name.as_ref().unwrap()($($arg),*) }
    };
}
pub(crate) use call;

/// The raw handle.
pub(crate) fn raw(device: &Device<'_>) -> sys::nvmlDevice_t {
    // SAFETY: the handle is used only while the library is loaded.
    unsafe { device.handle() }
}

pub(crate) fn zeroed<T>() -> T {
    // SAFETY: used only for the bindings' plain structs and pointers, for which zeros are fine.
    unsafe { std::mem::zeroed() }
}

/// The version word of a versioned struct.
pub(crate) fn version<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap() | number << 24
}

/// Creates a GPU instance where the driver likes; gives handle, id and start.
pub(crate) fn create(nvml: &Nvml, device: &Device<'_>, profile: u32) -> Result<Instance, u32> {
    let mut handle = zeroed();
    match call!(nvml, nvmlDeviceCreateGpuInstance(raw(device), profile, &mut handle)) {
        OK => Ok(Instance::of(nvml, handle)),
        code => Err(code),
    }
}

pub(crate) fn create_at(
    nvml: &Nvml,
    device: &Device<'_>,
    profile: u32,
    start: u32,
    size: u32,
) -> Result<Instance, u32> {
    let placement = sys::nvmlGpuInstancePlacement_t { start, size };
    let mut handle = zeroed();
    let code = call!(
        nvml,
        nvmlDeviceCreateGpuInstanceWithPlacement(raw(device), profile, &placement, &mut handle)
    );
    if code == OK { Ok(Instance::of(nvml, handle)) } else { Err(code) }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Instance {
    pub(crate) handle: sys::nvmlGpuInstance_t,
    pub(crate) id: u32,
    pub(crate) start: u32,
}

impl Instance {
    pub(crate) fn of(nvml: &Nvml, handle: sys::nvmlGpuInstance_t) -> Self {
        let mut info: sys::nvmlGpuInstanceInfo_t = zeroed();
        assert_eq!(call!(nvml, nvmlGpuInstanceGetInfo(handle, &mut info)), OK);
        Self { handle, id: info.id, start: info.placement.start }
    }
}

pub(crate) fn create_compute(
    nvml: &Nvml,
    instance: Instance,
    profile: u32,
) -> Result<sys::nvmlComputeInstance_t, u32> {
    let mut handle = zeroed();
    let made =
        call!(nvml, nvmlGpuInstanceCreateComputeInstance(instance.handle, profile, &mut handle));
    if made == OK { Ok(handle) } else { Err(made) }
}
