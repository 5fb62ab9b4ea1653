//! Building the parts and running what needs all of them.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Which of cargo's profiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    pub(crate) fn from_flag(args: &[String]) -> Self {
        if args.iter().any(|arg| arg == "--release") { Self::Release } else { Self::Dev }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Release => &["--release"],
        }
    }
}

/// Only a binary built with this can be told to die, for the crash test.
const DIE_AT: &str = "gpu-dra/die-at";

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("can't start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Builds the binary, the simulated NVML with its programs, and the hook, and lays the hook
/// beside the others. Gives the folder.
pub(crate) fn all(profile: Profile) -> Result<PathBuf> {
    let folder = target().join(profile.folder());
    let features: &[&str] = match profile {
        Profile::Dev => &["--features", DIE_AT],
        Profile::Release => &[],
    };
    run(cargo().arg("build").args(profile.flags()).args(features).args([
        "--package",
        "gpu-dra",
        "--package",
        "gpu-dra-nvml-sim",
    ]))?;
    hook(profile, &folder)?;
    plugin(&folder)?;
    Ok(folder)
}

/// The name by which kubectl finds the program, `kubectl gpu`, as a link beside it.
fn plugin(folder: &Path) -> Result<()> {
    let link = folder.join("kubectl-gpu");
    match std::os::unix::fs::symlink("gpu-dra", &link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.with_context(|| format!("can't make {}", link.display())),
    }
}

/// Hooks run on the host's own loader, or on none: the hook is linked statically, in a
/// target folder of its own since the flag would rebuild everything else.
fn hook(profile: Profile, folder: &Path) -> Result<()> {
    let target = target().join("static");
    let host = host_triple()?;
    run(cargo()
        .arg("build")
        .args(profile.flags())
        .args(["--package", "gpu-dra-hook", "--target", &host, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let built = target.join(&host).join(profile.folder()).join("gpu-dra-hook");
    let place = folder.join("gpu-dra-hook");
    std::fs::copy(&built, &place)
        .with_context(|| format!("can't copy {} to {}", built.display(), place.display()))?;
    Ok(())
}

fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("can't start rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Builds for release, then becomes the demo.
pub(crate) fn demo(args: &[String]) -> Result<()> {
    let folder = all(Profile::Release)?;
    let error = Command::new(folder.join("gpu-dra")).arg("demo").args(args).exec();
    Err(error).context("can't start the demo")
}

/// What `e2e/run` ends with where a real cluster can't run; it says why in one line.
const CANNOT_RUN: i32 = 77;

/// Builds the parts, then runs every test of the workspace, and the e2e suite where it can run.
pub(crate) fn test(args: &[String]) -> Result<()> {
    all(Profile::Dev)?;
    run(cargo().args(["test", "--workspace", "--features", DIE_AT]).args(args))?;
    let mut e2e = Command::new(root().join("e2e/run"));
    let status = e2e.status().context("can't start e2e/run")?;
    ensure!(status.success() || status.code() == Some(CANNOT_RUN), "e2e/run ended with {status}");
    Ok(())
}
