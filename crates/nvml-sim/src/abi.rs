//! C arguments as Rust values: out pointers, texts, handles.
//!
//! The one promise that everything here rests on is NVML's own: a caller passes null, or a
//! pointer that is good for what the function's signature says. It's made when an argument
//! is taken with [`Raw::take`]; what comes out can then be used without `unsafe`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::{Answer, Code};
use crate::garbage;

/// A C argument as it stands in a signature.
pub(crate) trait Raw {
    /// What the body of an export works with.
    type Taken;

    /// # Safety
    /// A pointer must be null or valid for the call, as NVML's documentation demands.
    unsafe fn take(self) -> Self::Taken;
}

/// An argument that names what a call is about.
pub(crate) trait Subject {
    /// The address behind a handle.
    fn subject(&self) -> Option<usize> {
        None
    }
}

macro_rules! by_value {
    ($($ty:ty),*) => { $(
        impl Raw for $ty {
            type Taken = $ty;

            unsafe fn take(self) -> $ty {
                self
            }
        }

        impl Subject for $ty {}
    )* };
}
by_value!(c_uint, c_int, c_ulonglong);

/// Plain C data: every bit pattern, all zeros among them, is a value.
///
/// # Safety
/// Only for types of which that is true.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => { $(
        // SAFETY: a number, a pointer, or a repr(C) struct of such and arrays of such.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(
    c_char,
    c_uint,
    c_int,
    c_ulonglong,
    sys::nvmlDevice_t,
    sys::nvmlGpuInstance_t,
    sys::nvmlComputeInstance_t,
    sys::nvmlEventSet_t,
    sys::nvmlGpmSample_t,
    sys::nvmlBAR1Memory_t,
    sys::nvmlC2cModeInfo_v1_t,
    sys::nvmlComputeInstanceInfo_t,
    sys::nvmlComputeInstancePlacement_t,
    sys::nvmlComputeInstanceProfileInfo_t,
    sys::nvmlComputeInstanceProfileInfo_v2_t,
    sys::nvmlComputeInstanceProfileInfo_v3_t,
    sys::nvmlConfComputeSystemState_t,
    sys::nvmlDeviceAddressingMode_t,
    sys::nvmlDeviceAttributes_t,
    sys::nvmlEventData_t,
    sys::nvmlFieldValue_t,
    sys::nvmlGpmSupport_t,
    sys::nvmlGpuFabricInfo_t,
    sys::nvmlGpuFabricInfo_v2_t,
    sys::nvmlGpuFabricInfo_v3_t,
    sys::nvmlGpuInstanceInfo_t,
    sys::nvmlGpuInstancePlacement_t,
    sys::nvmlGpuInstanceProfileInfo_t,
    sys::nvmlGpuInstanceProfileInfo_v2_t,
    sys::nvmlGpuInstanceProfileInfo_v3_t,
    sys::nvmlMemory_t,
    sys::nvmlMemory_v2_t,
    sys::nvmlPciInfoExt_v1_t,
    sys::nvmlPciInfo_t,
    sys::nvmlPdi_t,
    sys::nvmlPlatformInfo_v2_t,
    sys::nvmlProcessInfo_v1_t,
    sys::nvmlProcessInfo_v2_t,
    sys::nvmlProcessUtilizationSample_t,
    sys::nvmlRepairStatus_v1_t,
    sys::nvmlRowRemapperHistogramValues_t,
    sys::nvmlSystemDriverBranchInfo_v1_t,
    sys::nvmlUUID_t,
    sys::nvmlUtilization_t,
);

/// A value of all zeros.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: all zeros are a value of a `Plain` type.
    unsafe { std::mem::zeroed() }
}

/// A pointer through which a call answers; null or valid.
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Plain> Raw for *mut T {
    type Taken = Out<T>;

    unsafe fn take(self) -> Out<T> {
        Out(self)
    }
}

impl<T> Subject for Out<T> {}

impl<T: Plain> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the answer.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid by the promise of `Raw::take`; callers needn't align.
        unsafe { self.0.write_unaligned(value) };
        garbage::wrote(self.0.cast(), size_of::<T>());
        Ok(())
    }

    /// Reads what the caller put there.
    pub(crate) fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid by the promise of `Raw::take`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The nth element of an array that the caller has told the length of.
    pub(crate) fn nth(self, nth: usize) -> Self {
        Self(self.0.wrapping_add(nth))
    }

    /// The same memory as another version of the struct, after its version word said so.
    pub(crate) fn version<V: Plain>(self) -> Out<V> {
        Out(self.0.cast())
    }

    /// The version word that versioned structs begin with.
    pub(crate) fn version_word(self) -> Answer<c_uint> {
        self.version::<c_uint>().get()
    }

    /// Writes a list as NVML does: `count` holds the room and gets the number.
    pub(crate) fn list(self, items: &[T], count: Out<c_uint>) -> Answer {
        let room = count.get()?;
        let number = c_uint::try_from(items.len()).map_err(|_| Code::UNKNOWN)?;
        count.set(number)?;
        if room < number {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        self.write_all(items)
    }

    /// Writes all items to an array that is long enough by the function's contract.
    pub(crate) fn write_all(self, items: &[T]) -> Answer {
        for (nth, item) in items.iter().enumerate() {
            self.nth(nth).set(*item)?;
        }
        if items.is_empty() || !self.is_null() { Ok(()) } else { Err(Code::INVALID_ARGUMENT) }
    }
}

impl Out<c_char> {
    /// Writes a text with its final zero.
    pub(crate) fn text(self, text: &str, length: c_uint) -> Answer {
        if self.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        if text.len() >= room {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        for (nth, byte) in text.bytes().chain([0]).enumerate() {
            self.nth(nth).set(byte as c_char)?;
        }
        garbage::wrote(self.0.cast(), room);
        Ok(())
    }
}

/// A pointer to something that the caller gives; null or valid.
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Plain> Raw for *const T {
    type Taken = In<T>;

    unsafe fn take(self) -> In<T> {
        In(self)
    }
}

impl<T> Subject for In<T> {}

impl<T: Plain> In<T> {
    pub(crate) fn get(self) -> Answer<T> {
        Out(self.0.cast_mut()).get()
    }
}

impl In<c_char> {
    /// A text that ends in zero.
    pub(crate) fn text(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so a valid C string by the promise of `Raw::take`; it outlives
        // the call, and the reference lives no longer than this argument.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::INVALID_ARGUMENT)
    }
}

/// A text as it lies in a struct: cut to fit, with a final zero.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut all = [0 as c_char; N];
    let room = N.saturating_sub(1);
    for (to, from) in all.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
    all
}

macro_rules! handles {
    ($($ty:ident for $raw:ty: $doc:literal),* $(,)?) => { $(
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(crate) struct $ty(pub(crate) usize);

        impl Raw for $raw {
            type Taken = $ty;

            unsafe fn take(self) -> $ty {
                $ty(self.addr())
            }
        }

        impl Subject for $ty {
            fn subject(&self) -> Option<usize> {
                Some(self.0)
            }
        }
    )* };
}
handles!(
    DeviceArg for sys::nvmlDevice_t: "A GPU's or MIG device's handle, not yet looked up.",
    GpuInstanceArg for sys::nvmlGpuInstance_t: "A GPU instance's handle, not yet looked up.",
    ComputeInstanceArg for sys::nvmlComputeInstance_t: "A compute instance's handle, not yet looked up.",
    EventSetArg for sys::nvmlEventSet_t: "An event set's handle, not yet looked up.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_needs_room_for_its_zero() {
        let mut buffer = [1; 4];
        // SAFETY: the pointer is valid for the four elements whose number is passed.
        let out = unsafe { Raw::take(buffer.as_mut_ptr()) };
        assert_eq!(out.text("abcd", 4), Err(Code::INSUFFICIENT_SIZE));
        assert_eq!(out.text("abc", 4), Ok(()));
        assert_eq!(buffer, chars("abc"));
        let null: Out<c_char> = Out(std::ptr::null_mut());
        assert_eq!(null.text("a", 4), Err(Code::INVALID_ARGUMENT));
    }

    #[test]
    fn a_list_tells_its_length_when_there_is_no_room() {
        let mut count = 0;
        let (counts, null) = (Out(&raw mut count), Out(std::ptr::null_mut()));
        assert_eq!(null.list(&[7, 8], counts), Err(Code::INSUFFICIENT_SIZE));
        assert_eq!(count, 2);
        let mut room = [0; 2];
        let counts = Out(&raw mut count);
        assert_eq!(Out(room.as_mut_ptr()).list(&[7, 8], counts), Ok(()));
        assert_eq!(room, [7, 8]);
    }
}
