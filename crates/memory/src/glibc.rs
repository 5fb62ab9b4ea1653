//! glibc's heaps, and the program's own pages.

use std::ffi::{c_int, c_void};

/// Heaps of blocking threads: without a limit every thread that once allocated keeps one.
const HEAPS: c_int = 1;
/// Bytes that a heap may keep free at its end; glibc's own limit grows to twice the largest
/// block ever freed, up to 64 MiB.
const KEPT_FREE: c_int = 64 << 10;
/// Bytes by which a heap grows beyond what is asked for.
const GROWTH: c_int = 16 << 10;
/// Blocks from this size on are mapped by themselves, and gone when freed.
const MAPPED: c_int = 128 << 10;

/// Tells the C library not to hoard, as the environment variables `MALLOC_ARENA_MAX` and the
/// like would. To be called before there are threads; later it holds for new heaps alone.
pub fn be_frugal() {
    let settings = [
        (libc::M_ARENA_MAX, HEAPS),
        (libc::M_TRIM_THRESHOLD, KEPT_FREE),
        (libc::M_TOP_PAD, GROWTH),
        (libc::M_MMAP_THRESHOLD, MAPPED),
    ];
    for (parameter, value) in settings {
        // SAFETY: mallopt takes two integers, locks the heap and keeps no pointer. What it
        // refuses stays as it was, which costs memory and nothing else.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives free memory back to the kernel, and unmaps the program's code and constants, whose
/// pages come back from the page cache as they are needed: code that runs at the start alone
/// doesn't count as ours from then on. Takes about a millisecond.
pub fn give_back() {
    // SAFETY: malloc_trim locks each heap and touches memory that nobody has allocated.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: the callback has the type that is asked for, takes no data and doesn't unwind.
    unsafe { libc::dl_iterate_phdr(Some(unmap_program), std::ptr::null_mut()) };
}

/// Unmaps the pages of the first object, the program itself, that nobody can have changed.
/// Libraries stay: one that relocates its own code would lose that.
unsafe extern "C" fn unmap_program(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: the loader passes a valid object for the time of this call.
    let Some(object) = (unsafe { object.as_ref() }) else { return STOP };
    if object.dlpi_phdr.is_null() {
        return STOP;
    }
    // SAFETY: the loader says how many headers there are; they lie in the mapped program.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    // SAFETY: sysconf takes an integer and gives one.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page) = usize::try_from(page) else { return STOP };
    for header in headers {
        let (Ok(address), Ok(size), Ok(base)) = (
            usize::try_from(header.p_vaddr),
            usize::try_from(header.p_memsz),
            usize::try_from(object.dlpi_addr),
        ) else {
            continue;
        };
        let is_constant = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
        if !is_constant || page == 0 {
            continue;
        }
        // Whole pages of this segment alone: what shares one with another segment stays.
        let start = (base + address).next_multiple_of(page);
        let end = (base + address + size) / page * page;
        if start < end {
            // SAFETY: these pages are the program's file, mapped privately by the kernel when
            // the program was started, and never writable: each is the file's page, and the
            // next access maps that again.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
    STOP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kilobytes of the anonymous or the file pages of this process that are resident.
    fn resident(line: &str) -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_free_and_what_is_not_needed_goes_and_all_goes_on() {
        be_frugal();
        let mut blocks: Vec<Box<[u8]>> = (0..1001).map(|_| vec![1; 32 << 10].into()).collect();
        let (heap, files) = (resident("RssAnon:"), resident("RssFile:"));
        // The last one keeps the heap's end where it is.
        let last = blocks.pop();
        drop(blocks);
        give_back();
        assert!(resident("RssAnon:") + (30 << 10) < heap, "free memory is still ours");
        assert!(resident("RssFile:") < files, "code is still mapped");
        assert_eq!(last.map(|last| last.len()), Some(32 << 10));
    }
}
