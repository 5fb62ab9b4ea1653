//! The action `update-ldcache`: the libraries of some folders become known to the loader.
//!
//! glibc: the image's cache is kept, and the folders' libraries are put before its entries
//! of the same name. A drop-in for `ld.so.conf` keeps them known to an ldconfig that the
//! image itself runs later. musl has no cache but a list of folders.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::Warning;
use crate::cache_file::{self, CacheFile, Entry};
use crate::elf::{self, SharedObject, WordSize};
use crate::error::HookError;
use crate::inroot::{InRoot, Mounts};
use crate::place;

const CACHE: &str = "ld.so.cache";
const CONF: &str = "ld.so.conf";
const CONF_FOLDER: &str = "ld.so.conf.d";
/// Read early: a folder named first wins when ldconfig finds a library twice.
const DROP_IN: &str = "00-gpu-dra.conf";

/// Real caches have tens to hundreds of kilobytes.
const LARGEST_CACHE: u64 = 16 * 1024 * 1024;

/// What musl searches where its list isn't there.
const MUSL_DEFAULT: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];

pub(crate) fn update(root: &InRoot, folders: &[String]) -> Result<Vec<Warning>, HookError> {
    let mut warnings = Vec::new();
    let mut tolerate = |what: &'static str, path: &str, result: io::Result<()>| match result {
        Ok(()) => Ok(()),
        Err(error) if place::is_the_pods_choice(&error) => {
            warnings.push(format!("/etc/{path} left as it is: {error}"));
            Ok(())
        }
        Err(source) => Err(HookError::Io { what, path: Path::new("/etc").join(path), source }),
    };
    let arch = std::env::consts::ARCH;
    if root.find(Path::new(&format!("lib/ld-musl-{arch}.so.1"))).is_ok() {
        let list = format!("ld-musl-{arch}.path");
        tolerate("write", &list, extend_musl_path(root, &list, folders))?;
    }
    if uses_glibc(root) {
        tolerate("write", CACHE, write_cache(root, folders))?;
        tolerate("write", CONF, write_conf(root, folders))?;
    }
    Ok(warnings)
}

/// Whether programs of glibc may run here: its loader or its cache is there.
fn uses_glibc(root: &InRoot) -> bool {
    let loader = match std::env::consts::ARCH {
        "aarch64" => "lib/ld-linux-aarch64.so.1",
        _ => "lib64/ld-linux-x86-64.so.2",
    };
    [loader, "etc/ld.so.cache", "etc/ld.so.conf"]
        .iter()
        .any(|path| root.find(Path::new(path)).is_ok())
}

/// `/etc`, unless the pod has mounted something there: with the host's own `/etc` mounted,
/// the host's loader would be sent to the container's libraries.
fn etc(root: &InRoot) -> io::Result<OwnedFd> {
    place::folder(root, Path::new("etc"), Mounts::Stay)
}

fn write_cache(root: &InRoot, folders: &[String]) -> io::Result<()> {
    let etc = etc(root)?;
    let old = read_cache(root);
    let mut entries = Vec::new();
    for folder in folders {
        scan(root, folder, &old, &mut entries);
    }
    let replaced: HashSet<(&[u8], u32)> =
        entries.iter().map(|entry| (&entry.name[..], entry.flags)).collect();
    let is_kept = |entry: &&Entry| !replaced.contains(&(&entry.name[..], entry.flags));
    let kept: Vec<Entry> = old.entries.iter().filter(is_kept).cloned().collect();
    entries.extend(kept);
    let bytes = CacheFile { entries, hwcaps: old.hwcaps }
        .to_bytes()
        .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 GiB of names"))?;
    place::file(&etc, CACHE, &bytes)
}

/// The image's cache; an empty one where it has none that the loader could read either.
fn read_cache(root: &InRoot) -> CacheFile {
    let mut bytes = Vec::new();
    root.read(&Path::new("etc").join(CACHE))
        .and_then(|file| file.take(LARGEST_CACHE).read_to_end(&mut bytes))
        .ok()
        .and_then(|_| cache_file::parse(&bytes))
        .unwrap_or_default()
}

/// Adds an entry for each library in the folder that the old cache doesn't know at this
/// place: the image's own libraries keep theirs. A folder that isn't there has none.
fn scan(root: &InRoot, folder: &str, old: &CacheFile, entries: &mut Vec<Entry>) {
    let folder = folder.trim_end_matches('/');
    let known: HashSet<(&[u8], &[u8])> =
        old.entries.iter().map(|entry| (&entry.name[..], &entry.path[..])).collect();
    let names: BTreeSet<String> =
        root.names(Path::new(folder)).unwrap_or_default().into_iter().collect();
    let mut added = HashSet::new();
    for file_name in names.iter().filter(|name| is_library(name)) {
        let mut path = format!("{folder}/{file_name}");
        if known.contains(&(file_name.as_bytes(), path.as_bytes())) {
            continue;
        }
        let library = root.read(Path::new(&path)).ok().and_then(|file| elf::read(&file));
        let Some(library) = library else { continue };
        let Some(flags) = flags(&library) else { continue };
        // A link is known by its own name. A file is known by its SONAME, and found by the
        // link of that name if there is one.
        let mut name = file_name.clone();
        if let Some(soname) = library.soname
            && !root.is_link(Path::new(&path))
        {
            if names.contains(&soname) {
                path = format!("{folder}/{soname}");
            }
            name = soname;
        }
        if !known.contains(&(name.as_bytes(), path.as_bytes())) && added.insert(name.clone()) {
            let (name, path) = (name.into_bytes(), path.into_bytes());
            entries.push(Entry { flags, name, path, os_version: 0, hwcap: 0 });
        }
    }
}

/// The names that ldconfig takes for libraries: `lib*.so` and `lib*.so.*`.
fn is_library(name: &str) -> bool {
    name.starts_with("lib") && (name.ends_with(".so") || name.contains(".so."))
}

/// Which programs can load the library (`FLAG_ELF_LIBC6` and one for the machine,
/// glibc's `ldconfig.h`); `None` where none of this node's can.
fn flags(library: &SharedObject) -> Option<u32> {
    const ELF_LIBC6: u32 = 0x0003;
    const X86_64_LIB64: u32 = 0x0300;
    const AARCH64_LIB64: u32 = 0x0a00;
    match (std::env::consts::ARCH, library.machine) {
        ("x86_64", object::elf::EM_X86_64) if library.word_size == WordSize::Bits64 => {
            Some(X86_64_LIB64 | ELF_LIBC6)
        }
        ("x86_64", object::elf::EM_386) => Some(ELF_LIBC6),
        ("aarch64", object::elf::EM_AARCH64) => Some(AARCH64_LIB64 | ELF_LIBC6),
        _ => None,
    }
}

/// The drop-in, and an `ld.so.conf` that reads it where the image has none at all.
fn write_conf(root: &InRoot, folders: &[String]) -> io::Result<()> {
    let etc = etc(root)?;
    let drop_ins = place::folder(root, &Path::new("etc").join(CONF_FOLDER), Mounts::Stay)?;
    place::file(&drop_ins, DROP_IN, lines(folders).as_bytes())?;
    match root.find(&Path::new("etc").join(CONF)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            place::file(&etc, CONF, format!("include /etc/{CONF_FOLDER}/*.conf\n").as_bytes())
        }
        _ => Ok(()),
    }
}

/// Adds the folders to musl's list, behind those that are there: libraries for glibc must
/// not be found before musl's own.
fn extend_musl_path(root: &InRoot, list: &str, folders: &[String]) -> io::Result<()> {
    let etc = etc(root)?;
    let mut text = String::new();
    let old = root.read(&Path::new("etc").join(list));
    let mut all: Vec<String> = match old {
        Ok(file) => {
            file.take(LARGEST_CACHE).read_to_string(&mut text)?;
            text.split([':', '\n']).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            MUSL_DEFAULT.map(str::to_owned).to_vec()
        }
        Err(error) => return Err(error),
    };
    let before = all.len();
    for folder in folders {
        if !all.contains(folder) {
            all.push(folder.clone());
        }
    }
    if all.len() == before { Ok(()) } else { place::file(&etc, list, lines(&all).as_bytes()) }
}

fn lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}
