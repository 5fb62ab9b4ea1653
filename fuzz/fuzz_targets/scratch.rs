//! A folder in memory, away when the process ends by itself.

use std::path::{Path, PathBuf};

/// A folder for this process. Nothing is dropped at the end of a fuzzer, so what earlier ones
/// have left is removed here.
pub fn folder(target: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let prefix = format!("gpu-dra-fuzz-{target}-");
    let mut name = prefix.clone();
    name.push_str(&std::process::id().to_string());
    for entry in place.read_dir().into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        let process = found.strip_prefix(&prefix).map(|pid| Path::new("/proc").join(pid));
        if process.is_some_and(|process| !process.exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = place.join(name);
    std::fs::create_dir_all(&folder).expect("a folder in memory");
    folder
}
