//! Whether a library file is whole. The dynamic loader maps what the program headers promise
//! and the process dies of SIGBUS where the file ends early: a driver that is still being
//! copied into place must not take the agent with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sizes and offsets of the ELF-64 header and of a program header (`elf.h`).
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PHOFF: usize = 32;
const PHNUM: usize = 56;
const P_TYPE_LOAD: u32 = 1;
const P_OFFSET: usize = 8;
const P_FILESZ: usize = 32;

/// Whether the file has a header and every loadable part lies within it. A long enough file
/// that is no little-endian ELF-64 counts as whole: the loader refuses it with its own words.
pub(crate) fn is_whole(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut header = [0; HEADER];
    if file.read_exact_at(&mut header, 0).is_err() {
        return Ok(false);
    }
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(true);
    }
    let table = u64_at(&header, PHOFF);
    for entry in 0..u64::from(u16_at(&header, PHNUM)) {
        let mut program = [0; PROGRAM_HEADER];
        let Some(at) = table.checked_add(entry * PROGRAM_HEADER as u64) else { return Ok(false) };
        if file.read_exact_at(&mut program, at).is_err() {
            return Ok(false);
        }
        let end = u64_at(&program, P_OFFSET).checked_add(u64_at(&program, P_FILESZ));
        if u32_at(&program, 0) == P_TYPE_LOAD && end.is_none_or(|end| end > length) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn own_program_cut_anywhere_in_what_is_loaded_is_not_whole() {
        let program = std::env::current_exe().unwrap();
        assert!(is_whole(&program).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let cut = dir.path().join("cut");
        for keep in [0, 1, 16, 63, 64, 100, 4096, 100_000] {
            let mut start = vec![0; keep];
            File::open(&program).unwrap().read_exact_at(&mut start, 0).unwrap();
            fs::write(&cut, start).unwrap();
            assert!(!is_whole(&cut).unwrap(), "{keep} bytes");
        }
    }

    #[test]
    fn other_files_are_left_to_the_loader() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text ".repeat(100)).unwrap();
        assert!(is_whole(&file).unwrap());
        assert!(is_whole(&dir.path().join("absent")).is_err());
    }
}
