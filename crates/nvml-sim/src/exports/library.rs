//! Starting, stopping, versions, error texts.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{chars, zeroed};
use crate::code::{self, Code};
use crate::entry::returned;
use crate::session;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit_v2() -> sys::nvmlReturn_t {
    returned(|| session::start("nvmlInit_v2"))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit() -> sys::nvmlReturn_t {
    returned(|| session::start("nvmlInit"))
}

/// The flags only spare work that isn't done here.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> sys::nvmlReturn_t {
    returned(|| session::start("nvmlInitWithFlags"))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlShutdown() -> sys::nvmlReturn_t {
    returned(session::stop)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(result: sys::nvmlReturn_t) -> *const c_char {
    code::describe(result).as_ptr()
}

exports! {
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) |call| {
        version.text(&call.node().driver.version, length)
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) |call| {
        version.text(&call.node().driver.nvml(), length)
    }

    fn nvmlSystemGetCudaDriverVersion(cuda: *mut c_int) |call| {
        cuda.set(call.node().driver.cuda)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(cuda: *mut c_int) |call| {
        cuda.set(call.node().driver.cuda)
    }

    fn nvmlSystemGetDriverBranch(
        info: *mut sys::nvmlSystemDriverBranchInfo_v1_t,
        length: c_uint,
    ) |call| {
        let version = info.version_word()?;
        let branch = call.node().driver.version.split('.').next().unwrap_or_default();
        let name = format!("r{branch}_00");
        if name.len() >= usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        info.set(sys::nvmlSystemDriverBranchInfo_v1_t { version, branch: chars(&name) })
    }

    /// The command of a process of this machine.
    fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) |_call| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.text(command.map_err(|_| Code::NOT_FOUND)?.trim_end(), length)
    }

    fn nvmlSystemGetConfComputeState(state: *mut sys::nvmlConfComputeSystemState_t) |_call| {
        state.set(zeroed())
    }

    fn nvmlUnitGetCount(count: *mut c_uint) |_call| { count.set(0) }

    fn nvmlGetExcludedDeviceCount(count: *mut c_uint) |_call| { count.set(0) }
}
