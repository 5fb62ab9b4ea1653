//! The action `update-ldcache` on glibc images.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{Bundle, compile, is_root, ldconfig_print, library};

const UPDATE: [&str; 3] = ["update-ldcache", "--folder", "/usr/lib64"];

/// A root file system in which a program of the host runs: its loader and C library, and a
/// program that loads a library by name and prints what it answers.
fn runnable(bundle: &Bundle) {
    let program = bundle.root().join("probe");
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            void *library = dlopen(argv[1], RTLD_NOW);
            if (!library) { puts(dlerror()); return 1; }
            int (*answer)(void) = (int (*)(void))dlsym(library, "answer");
            printf("%d\n", answer());
            return 0;
        }"#;
    compile(source, &program, &["-ldl"]);
    let output = Command::new("ldd").arg(&program).output().unwrap();
    let libraries = String::from_utf8(output.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = bundle.root().join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(library, copy).unwrap();
    }
}

fn probe(bundle: &Bundle, library: &str) -> (bool, String) {
    let output =
        Command::new("chroot").arg(bundle.root()).args(["/probe", library]).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_real_loader_finds_libcuda_by_our_cache_alone() {
    if !is_root("the_real_loader_finds_libcuda_by_our_cache_alone") {
        return;
    }
    let bundle = Bundle::new();
    runnable(&bundle);
    let folder = bundle.root().join("opt/driver");
    library(&folder.join("libcuda.so.570.1"), "libcuda.so.1", 42);
    let (found, text) = probe(&bundle, "libcuda.so.1");
    assert!(!found && text.contains("libcuda.so.1"), "before: {text}");
    bundle.must(&["create-links", "--link", "libcuda.so.570.1::/opt/driver/libcuda.so.1"]);
    let (found, text) = probe(&bundle, "libcuda.so.1");
    assert!(!found, "the link alone is not enough: {text}");
    bundle.must(&["update-ldcache", "--folder", "/opt/driver"]);
    assert_eq!(probe(&bundle, "libcuda.so.1"), (true, "42".to_owned()));
}

#[test]
fn a_driver_library_wins_over_the_images_own_and_the_others_stay() {
    if !is_root("a_driver_library_wins_over_the_images_own_and_the_others_stay") {
        return;
    }
    let bundle = Bundle::new();
    runnable(&bundle);
    let image = bundle.root().join("usr/local/lib");
    library(&image.join("libcuda.so.1"), "libcuda.so.1", 1);
    for number in 0..40 {
        library(
            &image.join(format!("lib{number}.so.{number}")),
            &format!("lib{number}.so.{number}"),
            number,
        );
    }
    bundle.write("etc/ld.so.conf", "/usr/local/lib\n");
    let ldconfig = Command::new("/sbin/ldconfig").arg("-r").arg(bundle.root()).status().unwrap();
    assert!(ldconfig.success());
    assert_eq!(probe(&bundle, "libcuda.so.1").1, "1");

    library(&bundle.root().join("usr/lib64/libcuda.so.570.1"), "libcuda.so.1", 42);
    bundle.must(&UPDATE);
    assert_eq!(probe(&bundle, "libcuda.so.1"), (true, "42".to_owned()));
    for number in 0..40 {
        let name = format!("lib{number}.so.{number}");
        assert_eq!(probe(&bundle, &name), (true, number.to_string()), "{name}");
    }
}

/// The host's own cache is the largest real one at hand, with hwcaps subfolders on some
/// hosts: all of it survives the round trip, in ldconfig's own order.
#[test]
fn the_images_cache_is_kept() {
    let Some(before) = ldconfig_print(Path::new("/etc/ld.so.cache")) else { return };
    let bundle = Bundle::new();
    fs::copy("/etc/ld.so.cache", bundle.root().join("etc/ld.so.cache")).unwrap();
    library(&bundle.root().join("usr/lib64/libgpudra.so.1.2"), "libgpudra.so.1", 1);
    bundle.must(&UPDATE);
    let after = ldconfig_print(&bundle.root().join("etc/ld.so.cache")).unwrap();
    let lines = |text: &str| -> Vec<String> {
        text.lines().skip(1).filter(|l| l.contains("=>")).map(str::to_owned).collect()
    };
    let (ours, others): (Vec<_>, Vec<_>) =
        lines(&after).into_iter().partition(|line| line.contains("libgpudra"));
    assert_eq!(others, lines(&before));
    assert_eq!(ours.len(), 1);
    assert!(ours[0].contains("libgpudra.so.1 (libc6,"), "{ours:?}");
    assert!(ours[0].ends_with("=> /usr/lib64/libgpudra.so.1.2"), "no link, so the file: {ours:?}");
}

#[test]
fn ldconfig_reads_what_it_would_have_written() {
    let bundle = Bundle::new();
    let folder = bundle.root().join("usr/lib64");
    for (file, soname) in [
        ("libcuda.so.570.1", "libcuda.so.1"),
        ("libnvidia-ml.so.570.1", "libnvidia-ml.so.1"),
        ("libnvidia-glcore.so.570.1", "libnvidia-glcore.so.570.1"),
    ] {
        library(&folder.join(file), soname, 0);
        if file != soname {
            symlink(file, folder.join(soname)).unwrap();
        }
    }
    symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
    bundle.write("usr/lib64/libtext.so", "INPUT(libcuda.so)");
    bundle.write("etc/ld.so.conf", "");
    bundle.must(&UPDATE);
    let Some(ours) = ldconfig_print(&bundle.root().join("etc/ld.so.cache")) else { return };

    bundle.write("etc/ld.so.conf", "/usr/lib64\n");
    let theirs = bundle.root().join("etc/theirs");
    let status = Command::new("/sbin/ldconfig")
        .arg("-r")
        .arg(bundle.root())
        .args(["-X", "-f", "/etc/ld.so.conf", "-C", "/etc/theirs"])
        .status()
        .unwrap();
    assert!(status.success());
    let theirs = ldconfig_print(&theirs).unwrap();
    let entries = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("/usr/lib64/")).map(str::to_owned).collect()
    };
    assert_eq!(entries(&ours), entries(&theirs));
    assert_eq!(entries(&ours).len(), 4);
}

#[test]
fn a_later_ldconfig_of_the_image_still_knows_the_folder() {
    let bundle = Bundle::new();
    bundle.write("lib64/ld-linux-x86-64.so.2", "");
    bundle.write("lib/ld-linux-aarch64.so.1", "");
    bundle.must(&UPDATE);
    let read = |path: &str| fs::read_to_string(bundle.root().join(path)).unwrap();
    assert_eq!(read("etc/ld.so.conf.d/00-gpu-dra.conf"), "/usr/lib64\n");
    assert_eq!(read("etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n");
    bundle.write("etc/ld.so.conf", "the image's own\n");
    bundle.must(&UPDATE);
    assert_eq!(read("etc/ld.so.conf"), "the image's own\n");
}

#[test]
fn an_image_without_any_loader_is_left_alone() {
    let bundle = Bundle::new();
    bundle.must(&UPDATE);
    assert_eq!(fs::read_dir(bundle.root().join("etc")).unwrap().count(), 0);
}
