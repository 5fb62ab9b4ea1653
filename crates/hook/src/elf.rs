//! What the loader wants to know of a shared library: its word size, machine and SONAME.
//!
//! Read by the program headers, as the loader does, and only the few pages that matter:
//! driver libraries have hundreds of megabytes. Files of an image are hostile input.

use std::fs::File;

use object::elf::{DT_NULL, DT_SONAME, DT_STRTAB, ET_DYN, FileHeader32, FileHeader64, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

/// SONAMEs longer than this can't be file names (`NAME_MAX`).
const LONGEST_NAME: u64 = 256;

/// Real dynamic sections have less than a kilobyte; a hostile one could claim the memory
/// of the host.
const LARGEST_DYNAMIC: u64 = 64 * 1024;

/// "More program headers than fit": no shared library has them, and the count that would
/// follow is not to be trusted.
const PN_XNUM: u16 = 0xffff;

/// The word size of an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordSize {
    /// `ELFCLASS32`.
    Bits32,
    /// `ELFCLASS64`.
    Bits64,
}

/// A shared library's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedObject {
    /// 32 or 64 bits.
    pub word_size: WordSize,
    /// `e_machine`, e.g. `EM_X86_64`.
    pub machine: u16,
    /// `DT_SONAME`, where it has one.
    pub soname: Option<String>,
}

impl SharedObject {
    /// Whether programs of this machine (the one that the driver runs on) can load it.
    #[must_use]
    pub fn is_native(&self) -> bool {
        let machine = match std::env::consts::ARCH {
            "x86_64" => object::elf::EM_X86_64,
            "aarch64" => object::elf::EM_AARCH64,
            _ => return false,
        };
        self.word_size == WordSize::Bits64 && self.machine == machine
    }
}

/// Reads a file's identity; `None` if it is no shared library, or a broken one.
#[must_use]
pub fn read(file: &File) -> Option<SharedObject> {
    let cache = ReadCache::new(file);
    let data = &cache;
    let ident: &[u8] = data.read_bytes_at(0, 5).ok()?;
    match ident {
        [0x7f, b'E', b'L', b'F', 1] => parse::<FileHeader32<Endianness>, _>(data, WordSize::Bits32),
        [0x7f, b'E', b'L', b'F', 2] => parse::<FileHeader64<Endianness>, _>(data, WordSize::Bits64),
        _ => None,
    }
}

fn parse<'data, H, R>(data: R, word_size: WordSize) -> Option<SharedObject>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_type(endian) != ET_DYN {
        return None;
    }
    if header.e_phnum(endian) == PN_XNUM {
        return None;
    }
    let segments = header.program_headers(endian, data).ok()?;
    let dynamic = segments
        .iter()
        .filter(|segment| segment.p_filesz(endian).into() <= LARGEST_DYNAMIC)
        .find_map(|segment| segment.dynamic(endian, data).ok().flatten());
    let soname = dynamic.and_then(|entries| {
        let value = |tag| {
            entries
                .iter()
                .take_while(|entry| entry.tag(endian) != DT_NULL)
                .find(|entry| entry.tag(endian) == tag)
                .map(|entry| entry.val(endian))
        };
        let address = value(DT_STRTAB)?.checked_add(value(DT_SONAME)?)?;
        let offset = segments.iter().filter(|s| s.p_type(endian) == PT_LOAD).find_map(|s| {
            let inside = address.checked_sub(s.p_vaddr(endian).into())?;
            let size: u64 = s.p_filesz(endian).into();
            let file_offset: u64 = s.p_offset(endian).into();
            if inside < size { file_offset.checked_add(inside) } else { None }
        })?;
        let end = offset.saturating_add(LONGEST_NAME);
        let name = data.read_bytes_at_until(offset..end, 0).ok()?;
        let name = std::str::from_utf8(name).ok()?;
        // A name with a slash would lead out of the library's own folder.
        (!name.is_empty() && !name.contains(['/', '\n'])).then(|| name.to_owned())
    });
    Some(SharedObject { word_size, machine: header.e_machine(endian), soname })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn libc_path() -> std::path::PathBuf {
        ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"]
            .iter()
            .map(std::path::PathBuf::from)
            .find(|path| path.exists())
            .expect("a C library to look at")
    }

    #[test]
    fn the_c_library_says_who_it_is() {
        let found = read(&File::open(libc_path()).unwrap()).unwrap();
        assert_eq!(found.soname.as_deref(), Some("libc.so.6"));
        assert!(found.is_native());
    }

    #[test]
    fn anything_else_is_no_library() {
        let whole = std::fs::read(libc_path()).unwrap();
        let read_bytes = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            read(&file)
        };
        assert_eq!(read_bytes(b""), None);
        assert_eq!(read_bytes(b"#!/bin/sh\n"), None);
        // Cut off anywhere it may lose its name, but never panics.
        for length in [4, 5, 20, 63, 64, 100, 500, 1000, 4000] {
            let cut = read_bytes(&whole[..length]);
            assert!(cut.is_none_or(|found| found.soname.is_none()), "{length}");
        }
        // Every field of the header damaged in turn.
        for at in 0..64 {
            let mut damaged = whole[..whole.len().min(300_000)].to_vec();
            damaged[at] = 0xff;
            let found = read_bytes(&damaged);
            assert!(found.is_none_or(|found| found.soname.is_none_or(|name| name.len() < 256)));
        }
    }
}
