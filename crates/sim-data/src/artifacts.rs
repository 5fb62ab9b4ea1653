//! Where cargo puts the simulated library and the programs, and building them for tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The built library and the folder of the built programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifacts {
    /// `libnvml_sim.so`.
    pub library: PathBuf,
    /// Where `nvidia-smi` and the other stand-ins lie.
    pub programs: PathBuf,
}

/// The file name that cargo gives the library.
pub const LIBRARY_FILE: &str = "libnvml_sim.so";

impl Artifacts {
    /// Those in a folder, as beside a binary of the same build; None where the library isn't
    /// there.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Option<Self> {
        let library = folder.join(LIBRARY_FILE);
        library.is_file().then(|| Self { library, programs: folder.to_owned() })
    }

    /// Has cargo build them, once for each test process, into the folder that the test runs
    /// from. Only for tests: needs the sources and cargo.
    ///
    /// # Errors
    /// What cargo said, or that this is no test of a cargo workspace.
    pub fn build_for_tests() -> Result<Self, String> {
        static BUILT: OnceLock<Result<Artifacts, String>> = OnceLock::new();
        BUILT.get_or_init(build).clone()
    }
}

fn build() -> Result<Artifacts, String> {
    let own = env::current_exe().map_err(|error| format!("where this test lies: {error}"))?;
    // target/PROFILE/deps/test-HASH
    let folder = own.ancestors().nth(2).ok_or("a test lies in target/PROFILE/deps")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().ok_or("a test lies in target/PROFILE/deps")?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .ok_or("this crate lies in crates/ of the workspace")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(workspace)
        .args(["build", "--quiet", "--package", "gpu-dra-nvml-sim", "--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .output()
        .map_err(|error| format!("can't start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo build -p gpu-dra-nvml-sim: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Artifacts::in_folder(folder)
        .ok_or_else(|| format!("{} has no {LIBRARY_FILE} after the build", folder.display()))
}
