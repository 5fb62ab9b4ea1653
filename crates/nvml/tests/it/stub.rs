//! Builds `stub.c` into a library of its own in a temporary folder, with staged trees.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use gpu_dra_nvml::Trees;
use tempfile::TempDir;

/// A stub library, its state files and the trees around it.
pub(crate) struct Stub {
    dir: TempDir,
    pub(crate) library: PathBuf,
    pub(crate) trees: Trees,
}

impl Stub {
    /// Compiles the stub with these options (`-DNAME`), as driver version 450.51.06.
    pub(crate) fn build(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stub.c");
        let file = dir.path().join("libnvidia-ml.so.450.51.06");
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-o"])
            .arg(&file)
            .arg(format!("-DSTATE_DIR=\"{}\"", dir.path().display()))
            .args(options)
            .arg(source)
            .output()
            .unwrap_or_else(|error| panic!("a C compiler ({compiler:?}) is needed: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let library = dir.path().join("libnvidia-ml.so.1");
        std::os::unix::fs::symlink(&file, &library).unwrap();
        let under = |name| dir.path().join(name);
        let trees = Trees { sysfs: under("sys"), proc: under("proc"), dev: under("dev") };
        Self { dir, library, trees }
    }

    /// Writes a state file of the stub.
    pub(crate) fn set(&self, name: &str, number: u32) {
        fs::write(self.dir.path().join(name), number.to_string()).unwrap();
    }

    /// Writes a file of a tree, with its folders.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Starts and stops so far, one word each.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Whether the library is mapped into this process.
    pub(crate) fn is_loaded(&self) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(&*self.dir.path().to_string_lossy())
    }

    /// The temporary folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
