//! NVML's lists of processes on a GPU, whose length changes while they are read: the wrapper
//! fails where a process starts between two calls. `unsafe` by the rules of `raw`.

use std::ptr;

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallError, Code};

/// Rounds in which a list that grows is asked for again.
const ROUNDS: u32 = 4;
/// Room for what comes while the list is read.
const HEADROOM: u32 = 8;
/// No GPU has as many; a longer list is taken for nonsense.
const MOST: u32 = 1 << 16;

/// A function that fills a list of processes.
type Lister = Result<
    unsafe extern "C" fn(
        sys::nvmlDevice_t,
        *mut u32,
        *mut sys::nvmlProcessInfo_t,
    ) -> sys::nvmlReturn_t,
    libloading::Error,
>;

/// `nvmlDeviceGetComputeRunningProcesses_v3`: drivers since 510 have it.
pub(crate) fn compute(
    nvml: &Nvml,
    device: &Device<'_>,
) -> Result<Vec<sys::nvmlProcessInfo_t>, CallError> {
    let symbol = &nvml.lib().nvmlDeviceGetComputeRunningProcesses_v3;
    list("nvmlDeviceGetComputeRunningProcesses_v3", symbol, device)
}

/// `nvmlDeviceGetMPSComputeRunningProcesses_v3`: clients of MPS daemons.
pub(crate) fn mps(
    nvml: &Nvml,
    device: &Device<'_>,
) -> Result<Vec<sys::nvmlProcessInfo_t>, CallError> {
    let symbol = &nvml.lib().nvmlDeviceGetMPSComputeRunningProcesses_v3;
    list("nvmlDeviceGetMPSComputeRunningProcesses_v3", symbol, device)
}

fn list(
    call: &'static str,
    symbol: &Lister,
    device: &Device<'_>,
) -> Result<Vec<sys::nvmlProcessInfo_t>, CallError> {
    let function = symbol.as_ref().map_err(|_| CallError::missing(call))?;
    let empty =
        sys::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    growing(call, empty, |items, count| {
        // SAFETY: prototype from the bindings, handle from the same library; `items` is null
        // or has room for the `count` that the function is told.
        unsafe { function(device.handle(), count, items) }
    })
}

/// `nvmlDeviceGetProcessUtilization`: what processes did after a moment in microseconds since
/// 1970. Empty where none did anything.
pub(crate) fn utilization(
    nvml: &Nvml,
    device: &Device<'_>,
    since_us: u64,
) -> Result<Vec<sys::nvmlProcessUtilizationSample_t>, CallError> {
    const CALL: &str = "nvmlDeviceGetProcessUtilization";
    let symbol = nvml.lib().nvmlDeviceGetProcessUtilization.as_ref();
    let function = symbol.map_err(|_| CallError::missing(CALL))?;
    let empty = sys::nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let found = growing(CALL, empty, |items, count| {
        // SAFETY: as above.
        unsafe { function(device.handle(), items, count, since_us) }
    });
    match found {
        Err(CallError { code: Code::NOT_FOUND, .. }) => Ok(Vec::new()),
        found => found,
    }
}

/// Asks for the length, then for the list, and again while it is longer than it was. `ask`
/// gets null with a count of 0, or as much room as the count says.
fn growing<T: Copy>(
    call: &'static str,
    empty: T,
    ask: impl Fn(*mut T, &mut u32) -> sys::nvmlReturn_t,
) -> Result<Vec<T>, CallError> {
    let mut count = 0;
    let mut code = Code(ask(ptr::null_mut(), &mut count));
    for _ in 0..ROUNDS {
        if code != Code::INSUFFICIENT_SIZE {
            break;
        }
        if count > MOST {
            return Err(CallError { call, code: Code::UNKNOWN });
        }
        let room = count + HEADROOM;
        let mut items = vec![empty; room as usize];
        count = room;
        code = Code(ask(items.as_mut_ptr(), &mut count));
        if code.0 == 0 {
            items.truncate(count as usize);
            return Ok(items);
        }
    }
    CallError::check(call, code.0)?;
    // Success without any room: there are none.
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of so many items the nth time that it is asked for.
    fn asked(lengths: &[u32]) -> Result<Vec<u32>, CallError> {
        let round = std::cell::Cell::new(0);
        growing("f", 0, |items, count| {
            let length = lengths[round.get().min(lengths.len() - 1)];
            round.set(round.get() + 1);
            let room = std::mem::replace(count, length);
            if room < length {
                return Code::INSUFFICIENT_SIZE.0;
            }
            for n in 0..length {
                // SAFETY: there is room for `length` items.
                unsafe { items.add(n as usize).write(n) };
            }
            0
        })
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again() {
        assert_eq!(asked(&[0]), Ok(vec![]));
        assert_eq!(asked(&[2]), Ok(vec![0, 1]));
        assert_eq!(asked(&[2, 9]).unwrap().len(), 9, "within the headroom");
        assert_eq!(asked(&[2, 30, 35]).unwrap().len(), 35);
        assert_eq!(asked(&[30, 1]), Ok(vec![0]));
        let endless = asked(&[1, 100, 200, 300, 400, 500]).unwrap_err();
        assert_eq!(endless.code, Code::INSUFFICIENT_SIZE);
        assert_eq!(asked(&[u32::MAX]).unwrap_err().code, Code::UNKNOWN);
    }
}
