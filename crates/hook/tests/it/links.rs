//! The action `create-links`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::Bundle;

fn target(bundle: &Bundle, path: &str) -> String {
    fs::read_link(bundle.root().join(path)).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn links_are_made_with_their_folders() {
    let bundle = Bundle::new();
    bundle.must(&[
        "create-links",
        "--link",
        "libcuda.so.570.1::/usr/lib64/libcuda.so.1",
        "--link",
        "../card1::/dev/dri/by-path/pci-0000:3b:00.0-card",
    ]);
    assert_eq!(target(&bundle, "usr/lib64/libcuda.so.1"), "libcuda.so.570.1");
    assert_eq!(target(&bundle, "dev/dri/by-path/pci-0000:3b:00.0-card"), "../card1");
}

#[test]
fn what_the_image_had_there_is_replaced_and_a_second_run_changes_nothing() {
    let bundle = Bundle::new();
    bundle.write("usr/lib64/libcuda.so.1", "a stub that the image was built with");
    symlink("libcuda.so.520", bundle.root().join("usr/lib64/libcuda.so")).unwrap();
    let args = [
        "create-links",
        "--link",
        "libcuda.so.570.1::/usr/lib64/libcuda.so.1",
        "--link",
        "libcuda.so.1::/usr/lib64/libcuda.so",
    ];
    bundle.must(&args);
    bundle.must(&args);
    assert_eq!(target(&bundle, "usr/lib64/libcuda.so.1"), "libcuda.so.570.1");
    assert_eq!(target(&bundle, "usr/lib64/libcuda.so"), "libcuda.so.1");
    let names = fs::read_dir(bundle.root().join("usr/lib64")).unwrap().count();
    assert_eq!(names, 2, "no temporary name is left");
}

#[test]
fn a_folder_in_a_links_place_is_an_error_that_names_it() {
    let bundle = Bundle::new();
    fs::create_dir(bundle.root().join("usr/lib64/libcuda.so.1")).unwrap();
    let output = bundle.call(&["create-links", "--link", "x::/usr/lib64/libcuda.so.1"]);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("make link /usr/lib64/libcuda.so.1: "), "{text}");
    assert_eq!(text.lines().count(), 1);
    assert!(!bundle.root().join("usr/lib64/.gpu-dra-hook.tmp").exists());
}

#[test]
fn a_leftover_of_a_killed_hook_is_replaced() {
    let bundle = Bundle::new();
    symlink("/etc/passwd", bundle.root().join("usr/lib64/.gpu-dra-hook.tmp")).unwrap();
    bundle.must(&["create-links", "--link", "b::/usr/lib64/a"]);
    assert_eq!(target(&bundle, "usr/lib64/a"), "b");
}

#[test]
fn wrong_calls_fail_with_a_sentence() {
    let bundle = Bundle::new();
    for args in [&["frobnicate"][..], &[], &["create-links", "--link", "a::b"]] {
        let output = bundle.call(args);
        assert!(!output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("gpu-dra-hook: "));
    }
    // A path that has no last part.
    let output = bundle.call(&["create-links", "--link", "a::/usr/.."]);
    assert!(!output.status.success());
    assert!(Path::new("/usr").is_dir());
}
