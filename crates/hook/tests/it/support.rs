//! Bundles with a root file system, libraries made by the C compiler, and calls of the hook.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) const HOOK: &str = env!("CARGO_BIN_EXE_gpu-dra-hook");

/// An OCI bundle whose root file system has an `etc` and a `usr/lib64`.
pub(crate) struct Bundle {
    pub(crate) dir: tempfile::TempDir,
}

impl Bundle {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Self { dir };
        fs::create_dir_all(bundle.root().join("etc")).unwrap();
        fs::create_dir_all(bundle.root().join("usr/lib64")).unwrap();
        let config = format!(r#"{{"ociVersion":"1.0.2","root":{{"path":{:?}}}}}"#, bundle.root());
        fs::write(bundle.dir.path().join("config.json"), config).unwrap();
        bundle
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    pub(crate) fn state(&self) -> String {
        format!(r#"{{"ociVersion":"1.0.2","id":"c","pid":1,"bundle":{:?}}}"#, self.dir.path())
    }

    /// Calls the hook as a runtime does.
    pub(crate) fn call(&self, args: &[&str]) -> Output {
        let mut hook = Command::new(HOOK);
        hook.args(args).env_clear().current_dir("/");
        pipe(hook, &self.state())
    }

    /// Calls the hook, which must succeed and have nothing to say.
    pub(crate) fn must(&self, args: &[&str]) {
        let output = self.call(args);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

pub(crate) fn pipe(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early doesn't read its input.
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    assert!(written.is_ok() || written.is_err_and(|e| e.kind() == ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

/// Compiles C; a machine that builds Rust has a C compiler to link with.
pub(crate) fn compile(source: &str, output: &Path, args: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(["-x", "c", "-", "-o"]).arg(output).args(args);
    let result = pipe(compiler, source);
    assert!(result.status.success(), "cc: {}", String::from_utf8_lossy(&result.stderr));
}

/// A shared library whose function `answer` gives a number.
pub(crate) fn library(path: &Path, soname: &str, answer: i32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let source = format!("int answer(void) {{ return {answer}; }}");
    compile(&source, path, &["-shared", "-fPIC", "-nostdlib", &format!("-Wl,-soname,{soname}")]);
}

/// Whether this process may mount and chroot; says what was skipped where not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped(&format!("{test} needs root"));
    }
    root
}

/// What the real ldconfig reads in a cache.
pub(crate) fn ldconfig_print(cache: &Path) -> Option<String> {
    let ldconfig =
        ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find(|p| Path::new(p).exists());
    let Some(ldconfig) = ldconfig else {
        skipped("ldconfig is not installed");
        return None;
    };
    let output = Command::new(ldconfig).arg("-p").arg("-C").arg(cache).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Says what can't be tested here, past the test harness, which hides what a passing test
/// prints.
pub(crate) fn skipped(what: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes()).unwrap();
}
