//! The NVML calls on instances, which the wrapper doesn't have. The program's only `unsafe`.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;

use gpu_dra_sim_data::mig_table::Placement;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::failure::Failure;

/// NVML's refusal, with the library's own words.
pub(super) struct Refusal {
    code: sys::nvmlReturn_t,
    text: String,
}

impl Refusal {
    pub(super) const NOT_FOUND: sys::nvmlReturn_t = 6;

    /// What is said of one deed, and of the whole command.
    pub(super) fn failure(&self, one: &str, all: &str) -> Failure {
        let code = u8::try_from(self.code).unwrap_or(255);
        Failure::new(code, format!("{one}: {text}\n{all}: {text}", text = self.text))
    }
}

/// The calls on one GPU.
#[derive(Clone, Copy)]
pub(super) struct Instances<'a> {
    nvml: &'a Nvml,
    device: &'a Device<'a>,
}

/// Calls a function of the library by name. Every call site passes null or pointers to its own
/// locals, of the types that the bindings demand, and handles that the library gave and that
/// are used while it is loaded: that is the whole contract.
macro_rules! call {
    ($self:ident, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $self.nvml.lib().$name.as_ref();
        // SAFETY: see the macro's own words.
        let code = function.map_or(MISSING, |function| unsafe { function($($arg),*) });
        if code == 0 { Ok(()) } else { Err($self.refusal(code)) }
    }};
}

/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
const MISSING: sys::nvmlReturn_t = 13;

impl<'a> Instances<'a> {
    pub(super) fn of(nvml: &'a Nvml, device: &'a Device<'a>) -> Self {
        Self { nvml, device }
    }

    /// Where the driver likes, or at a placement; gives the new instance's id.
    pub(super) fn create(self, profile: u32, at: Option<Placement>) -> Result<u32, Refusal> {
        let mut made = ptr::null_mut();
        match at {
            None => call!(self, nvmlDeviceCreateGpuInstance(self.handle(), profile, &mut made))?,
            Some(Placement { start, size }) => {
                let at = sys::nvmlGpuInstancePlacement_t { start, size };
                call!(
                    self,
                    nvmlDeviceCreateGpuInstanceWithPlacement(
                        self.handle(),
                        profile,
                        &at,
                        &mut made
                    )
                )?;
            }
        }
        let mut info = sys::nvmlGpuInstanceInfo_t {
            device: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        call!(self, nvmlGpuInstanceGetInfo(made, &mut info))?;
        Ok(info.id)
    }

    pub(super) fn destroy(self, id: u32) -> Result<(), Refusal> {
        let instance = self.by_id(id)?;
        call!(self, nvmlGpuInstanceDestroy(instance))
    }

    /// Gives the new compute instance's id.
    pub(super) fn create_compute(self, instance: u32, profile: u32) -> Result<u32, Refusal> {
        let instance = self.by_id(instance)?;
        let mut made = ptr::null_mut();
        call!(self, nvmlGpuInstanceCreateComputeInstance(instance, profile, &mut made))?;
        let mut info = sys::nvmlComputeInstanceInfo_t {
            device: ptr::null_mut(),
            gpuInstance: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        call!(self, nvmlComputeInstanceGetInfo_v2(made, &mut info))?;
        Ok(info.id)
    }

    pub(super) fn destroy_compute(self, instance: u32, id: u32) -> Result<(), Refusal> {
        let instance = self.by_id(instance)?;
        let mut compute = ptr::null_mut();
        call!(self, nvmlGpuInstanceGetComputeInstanceById(instance, id, &mut compute))?;
        call!(self, nvmlComputeInstanceDestroy(compute))
    }

    fn by_id(self, id: u32) -> Result<sys::nvmlGpuInstance_t, Refusal> {
        let mut instance = ptr::null_mut();
        call!(self, nvmlDeviceGetGpuInstanceById(self.handle(), id, &mut instance))?;
        Ok(instance)
    }

    fn handle(self) -> sys::nvmlDevice_t {
        // SAFETY: the handle is used only while the library is loaded.
        unsafe { self.device.handle() }
    }

    pub(super) fn refusal(self, code: sys::nvmlReturn_t) -> Refusal {
        let text = match self.nvml.lib().nvmlErrorString.as_ref() {
            // SAFETY: the library gives a text of its own that lives as long as it is loaded.
            Ok(function) => unsafe { CStr::from_ptr(function(code)) }.to_string_lossy().into(),
            Err(_) => format!("NVML error {code}"),
        };
        Refusal { code, text }
    }
}
