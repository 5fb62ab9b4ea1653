//! The loader's cache, `ld.so.cache`, in the form `glibc-ld.so.cache1.1` that every glibc
//! since 2.2 reads: a header, entries sorted for a binary search, strings, and an optional
//! extension that names the subfolders of `glibc-hwcaps` (glibc's `dl-cache.h`).
//!
//! Reads also the older form, in which this one follows `ld.so-1.7.0` entries. A file of
//! an image is hostile input: every offset is checked, and what doesn't fit is no cache.

use std::cmp::Ordering;
use std::collections::HashMap;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const EXTENSION_MAGIC: u32 = 0xEAA4_2174;
const TAG_HWCAPS: u32 = 1;
/// Marks an entry whose library lies in a `glibc-hwcaps` subfolder; the low half of the
/// field is then an index into the extension's list.
const HWCAP_EXTENSION: u64 = 1 << 62;
/// "The numbers in this file are little-endian"; a reader of the other kind ignores it.
const ENDIANNESS: u8 = if cfg!(target_endian = "little") { 2 } else { 3 };

/// The content of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CacheFile {
    pub(crate) entries: Vec<Entry>,
    /// The names of `glibc-hwcaps` subfolders that entries refer to, e.g. `x86-64-v3`.
    pub(crate) hwcaps: Vec<Vec<u8>>,
}

/// One library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Which programs can load it: see `dl-cache.h`, `FLAG_*`.
    pub(crate) flags: u32,
    /// The name that programs load it by.
    pub(crate) name: Vec<u8>,
    /// Its path.
    pub(crate) path: Vec<u8>,
    /// The oldest kernel for it; no longer used.
    pub(crate) os_version: u32,
    /// Which processors it is for; 0 for all.
    pub(crate) hwcap: u64,
}

/// Reads a cache; `None` if it isn't one.
pub(crate) fn parse(file: &[u8]) -> Option<CacheFile> {
    // Offsets count from the header of the newer form, wherever that begins; only the
    // extension's count from the beginning of the file.
    let start = if file.starts_with(OLD_MAGIC) {
        let count = usize::try_from(word(file, 12)?).ok()?;
        let end = count.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?;
        end.checked_next_multiple_of(8)?
    } else {
        0
    };
    let cache = file.get(start..)?;
    if !cache.starts_with(MAGIC) {
        return None;
    }
    let count = usize::try_from(word(cache, 20)?).ok()?;
    let entries = cache.get(HEADER..count.checked_mul(ENTRY)?.checked_add(HEADER)?)?;
    let entries = entries
        .chunks_exact(ENTRY)
        .map(|entry| {
            Some(Entry {
                flags: word(entry, 0)?,
                name: string(cache, word(entry, 4)?)?,
                path: string(cache, word(entry, 8)?)?,
                os_version: word(entry, 12)?,
                hwcap: u64::from(word(entry, 16)?) | u64::from(word(entry, 20)?) << 32,
            })
        })
        .collect::<Option<Vec<_>>>()?;
    let extension = word(cache, 32)?;
    let hwcaps = if extension == 0 { Vec::new() } else { hwcaps(file, cache, extension)? };
    let valid = |entry: &Entry| {
        entry.hwcap & HWCAP_EXTENSION == 0
            || usize::try_from(entry.hwcap & 0xffff_ffff).is_ok_and(|index| index < hwcaps.len())
    };
    let valid = entries.iter().all(valid);
    valid.then_some(CacheFile { entries, hwcaps })
}

fn hwcaps(file: &[u8], cache: &[u8], extension: u32) -> Option<Vec<Vec<u8>>> {
    let directory = file.get(usize::try_from(extension).ok()?..)?;
    if word(directory, 0)? != EXTENSION_MAGIC {
        return None;
    }
    let sections = usize::try_from(word(directory, 4)?).ok()?;
    let sections = directory.get(8..sections.checked_mul(16)?.checked_add(8)?)?;
    for section in sections.chunks_exact(16) {
        if word(section, 0)? == TAG_HWCAPS {
            let offset = usize::try_from(word(section, 8)?).ok()?;
            let size = usize::try_from(word(section, 12)?).ok()?;
            let names = file.get(offset..offset.checked_add(size)?)?;
            return names.chunks_exact(4).map(|name| string(cache, word(name, 0)?)).collect();
        }
    }
    Some(Vec::new())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn string(cache: &[u8], at: u32) -> Option<Vec<u8>> {
    let rest = cache.get(usize::try_from(at).ok()?..)?;
    // No path is longer than this (PATH_MAX); a lie about one must not be copied around.
    let rest = rest.get(..4096).unwrap_or(rest);
    rest.iter().position(|&byte| byte == 0).and_then(|end| rest.get(..end)).map(<[u8]>::to_vec)
}

impl CacheFile {
    /// The file's bytes; `None` where there is more than its 32-bit offsets can hold.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        // The loader halves a list that descends, and takes the first that fits among
        // equal names: the sort is stable, so what came first stays first.
        entries.sort_by(|a, b| compare_names(&b.name, &a.name));

        let mut strings = Strings::new(HEADER.checked_add(entries.len().checked_mul(ENTRY)?)?);
        let mut table = Vec::new();
        for entry in &entries {
            for number in [
                entry.flags,
                strings.add(&entry.name)?,
                strings.add(&entry.path)?,
                entry.os_version,
                (entry.hwcap & 0xffff_ffff) as u32,
                (entry.hwcap >> 32) as u32,
            ] {
                table.extend_from_slice(&number.to_ne_bytes());
            }
        }
        let hwcaps: Option<Vec<u32>> = self.hwcaps.iter().map(|name| strings.add(name)).collect();
        let hwcaps = hwcaps?;

        let strings_length = u32::try_from(strings.bytes.len()).ok()?;
        let strings_end = strings.next()?;
        let extension = if hwcaps.is_empty() { 0 } else { strings_end.next_multiple_of(4) };

        let mut file = MAGIC.to_vec();
        for number in [u32::try_from(entries.len()).ok()?, strings_length] {
            file.extend_from_slice(&number.to_ne_bytes());
        }
        file.extend_from_slice(&[ENDIANNESS, 0, 0, 0]);
        for number in [extension, 0, 0, 0] {
            file.extend_from_slice(&number.to_ne_bytes());
        }
        file.extend_from_slice(&table);
        file.extend_from_slice(&strings.bytes);
        if extension != 0 {
            file.resize(usize::try_from(extension).ok()?, 0);
            let size = u32::try_from(hwcaps.len()).ok()?.checked_mul(4)?;
            let offset = extension.checked_add(8 + 16)?;
            for number in [EXTENSION_MAGIC, 1, TAG_HWCAPS, 0, offset, size].iter().chain(&hwcaps) {
                file.extend_from_slice(&number.to_ne_bytes());
            }
        }
        Some(file)
    }
}

/// The string table: each string once.
struct Strings {
    start: usize,
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Strings {
    fn new(start: usize) -> Self {
        Self { start, bytes: Vec::new(), known: HashMap::new() }
    }

    fn next(&self) -> Option<u32> {
        u32::try_from(self.start.checked_add(self.bytes.len())?).ok()
    }

    fn add(&mut self, string: &[u8]) -> Option<u32> {
        if let Some(&at) = self.known.get(string) {
            return Some(at);
        }
        let at = self.next()?;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.known.insert(string.to_vec(), at);
        Some(at)
    }
}

/// The loader's order of names: digits count as numbers, and a number comes after any
/// other character (`_dl_cache_libcmp`).
pub(crate) fn compare_names(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        match (digit(one), digit(other)) {
            (true, true) => {
                let (left, right) = (take_number(&mut one), take_number(&mut other));
                if left != right {
                    return left.cmp(&right);
                }
            }
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => match (one.split_first(), other.split_first()) {
                (Some((left, rest)), Some((right, other_rest))) => {
                    // The loader compares `char`s, which are signed on x86 only; names in
                    // caches are ASCII.
                    if left != right {
                        return left.cmp(right);
                    }
                    (one, other) = (rest, other_rest);
                }
                (left, right) => return left.is_some().cmp(&right.is_some()),
            },
        }
    }
}

/// The number at the beginning, in the loader's 32-bit arithmetic.
fn take_number(text: &mut &[u8]) -> i32 {
    let mut number: i32 = 0;
    while let Some((digit, rest)) = text.split_first()
        && digit.is_ascii_digit()
    {
        number = number.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
        *text = rest;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, path: &str, hwcap: u64) -> Entry {
        let (name, path) = (name.as_bytes().to_vec(), path.as_bytes().to_vec());
        Entry { flags: 0x303, name, path, os_version: 0, hwcap }
    }

    fn sample() -> CacheFile {
        CacheFile {
            entries: vec![
                entry("libz.so.1", "/lib/libz.so.1", 0),
                entry("libm.so.6", "/lib/glibc-hwcaps/x86-64-v3/libm.so.6", HWCAP_EXTENSION),
                entry("libm.so.6", "/lib/libm.so.6", 0),
            ],
            hwcaps: vec![b"x86-64-v3".to_vec()],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&sample().to_bytes().unwrap()).unwrap(), sample());
        assert_eq!(parse(&CacheFile::default().to_bytes().unwrap()), Some(CacheFile::default()));
    }

    #[test]
    fn the_older_form_is_read_too() {
        // Three old entries (52 bytes, so the new part begins at 56).
        let mut file = OLD_MAGIC.to_vec();
        file.extend_from_slice(&3u32.to_ne_bytes());
        file.resize(56, 7);
        let plain = CacheFile { hwcaps: Vec::new(), entries: vec![entry("liba.so", "/a", 0)] };
        file.extend(plain.to_bytes().unwrap());
        assert_eq!(parse(&file).unwrap(), plain);
    }

    #[test]
    fn damage_is_seen_or_harmless() {
        let good = sample().to_bytes().unwrap();
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length]), None, "cut at {length}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Never a panic; what is still read can be written again.
            if let Some(cache) = parse(&bad) {
                assert!(cache.to_bytes().is_some());
            }
        }
        assert_eq!(parse(b"root:$6$secret:19000:0:99999:7:::\n"), None);
    }

    #[test]
    fn names_are_ordered_as_the_loader_does() {
        for (less, more) in [
            ("libc.so.6", "libc.so.10"),
            ("liba", "libb"),
            ("lib", "liba"),
            ("liba.so", "lib1.so"),
            ("libm.so.6", "libm-2.31.so.6x"),
        ] {
            let expected = if less == "libm.so.6" { Ordering::Greater } else { Ordering::Less };
            assert_eq!(compare_names(less.as_bytes(), more.as_bytes()), expected, "{less} {more}");
            assert_eq!(compare_names(more.as_bytes(), less.as_bytes()), expected.reverse());
        }
        assert_eq!(compare_names(b"lib01", b"lib1"), Ordering::Equal);
        assert_eq!(compare_names(b"", b""), Ordering::Equal);
    }
}
