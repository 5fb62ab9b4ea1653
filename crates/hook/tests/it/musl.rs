//! The action `update-ldcache` on musl images.

use std::fs;

use crate::support::Bundle;

const UPDATE: [&str; 5] =
    ["update-ldcache", "--folder", "/usr/lib64", "--folder", "/usr/local/lib"];

fn musl() -> (Bundle, String) {
    let bundle = Bundle::new();
    let arch = std::env::consts::ARCH;
    bundle.write(&format!("lib/ld-musl-{arch}.so.1"), "");
    let list = format!("etc/ld-musl-{arch}.path");
    (bundle, list)
}

#[test]
fn folders_come_behind_musls_defaults_once() {
    let (bundle, list) = musl();
    let read = || fs::read_to_string(bundle.root().join(&list)).unwrap();
    bundle.must(&UPDATE);
    assert_eq!(read(), "/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n");
    bundle.must(&UPDATE);
    assert_eq!(read(), "/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n");
    assert!(!bundle.root().join("etc/ld.so.cache").exists(), "musl has no cache");
}

#[test]
fn the_images_own_list_is_kept() {
    let (bundle, list) = musl();
    bundle.write(&list, "/lib:/opt/lib\n");
    bundle.must(&UPDATE);
    let text = fs::read_to_string(bundle.root().join(&list)).unwrap();
    assert_eq!(text, "/lib\n/opt/lib\n/usr/lib64\n/usr/local/lib\n");
}
