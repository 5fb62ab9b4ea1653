//! A container's root file system, made of busybox and the host's C library.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles C; a machine that builds Rust has a C compiler to link with.
pub(crate) fn compile(source: &str, output: &Path, args: &[&str]) {
    let mut cc = Command::new("cc")
        .args(["-x", "c", "-", "-o"])
        .arg(output)
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    cc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(cc.wait().unwrap().success());
}

/// Loads a library by its bare name and prints what its function `answer` says.
const PROBE: &str = r#"
    #include <dlfcn.h>
    #include <stdio.h>
    int main(int argc, char **argv) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        int (*answer)(void) = (int (*)(void))dlsym(library, "answer");
        printf("%d\n", answer());
        return 0;
    }"#;

/// Programs and the C library, but nothing of the driver.
pub(crate) fn build(root: &Path, busybox: &Path) {
    for folder in ["bin", "etc", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
    compile(PROBE, &root.join("bin/probe"), &["-ldl"]);
    let output = Command::new("ldd").arg(root.join("bin/probe")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(library, copy).unwrap();
    }
}
