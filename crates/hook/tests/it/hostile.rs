//! Images that want the hook, which runs as root on the host, to change or reveal files
//! outside their root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{Bundle, library};

/// A bundle, and a folder beside its root that stands for the host's files.
fn with_host_folder() -> (Bundle, PathBuf) {
    let bundle = Bundle::new();
    let host = bundle.dir.path().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("shadow"), "root:secret").unwrap();
    (bundle, host)
}

/// The names and contents of a folder.
fn content(folder: &Path) -> Vec<(String, String)> {
    let mut content: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    content.sort();
    content
}

fn replace_by_link(bundle: &Bundle, path: &str, target: &Path) {
    let path = bundle.root().join(path);
    if path.is_dir() {
        fs::remove_dir_all(&path).unwrap();
    }
    symlink(target, path).unwrap();
}

const BOTH: [&[&str]; 2] = [
    &["update-ldcache", "--folder", "/usr/lib64"],
    &["create-links", "--link", "b::/usr/lib64/a", "--link", "b::/usr/lib64/deep/a"],
];

#[test]
fn folders_that_are_links_to_the_host_stay_inside() {
    for path in ["etc", "usr/lib64", "usr"] {
        let (bundle, host) = with_host_folder();
        bundle.write("lib64/ld-linux-x86-64.so.2", "");
        bundle.write("lib/ld-linux-aarch64.so.1", "");
        let before = content(&host);
        for target in [host.as_path(), Path::new("../host"), Path::new("../../host")] {
            replace_by_link(&bundle, path, target);
            for args in BOTH {
                // It may fail, since the link dangles inside the root; it may not escape.
                bundle.call(args);
                assert_eq!(content(&host), before, "{path} -> {}", target.display());
            }
            fs::remove_file(bundle.root().join(path)).unwrap();
        }
    }
}

#[test]
fn files_that_are_links_to_the_host_are_replaced_not_followed() {
    let (bundle, host) = with_host_folder();
    let before = content(&host);
    let etc = bundle.root().join("etc");
    fs::create_dir(etc.join("ld.so.conf.d")).unwrap();
    let links = ["ld.so.cache", "ld.so.conf.d/00-gpu-dra.conf", ".gpu-dra-hook.tmp"];
    for name in links {
        symlink(host.join("shadow"), etc.join(name)).unwrap();
    }
    fs::write(etc.join("ld.so.conf"), "").unwrap();
    bundle.must(BOTH[0]);
    assert_eq!(content(&host), before);
    for name in &links[..2] {
        assert!(!etc.join(name).is_symlink(), "{name}");
        assert!(!fs::read_to_string(etc.join(name)).unwrap_or_default().contains("secret"));
    }
}

/// Absolute links that stay inside are how many images are built: they work.
#[test]
fn links_inside_the_root_are_followed_inside() {
    let bundle = Bundle::new();
    fs::create_dir(bundle.root().join("real-etc")).unwrap();
    fs::write(bundle.root().join("real-etc/ld.so.conf"), "").unwrap();
    replace_by_link(&bundle, "etc", Path::new("/real-etc"));
    bundle.must(BOTH[0]);
    assert!(bundle.root().join("real-etc/ld.so.cache").is_file());
}

#[test]
fn files_that_are_no_libraries_are_not_opened_or_believed() {
    let bundle = Bundle::new();
    bundle.write("etc/ld.so.conf", "");
    let folder = bundle.root().join("usr/lib64");
    let fifo = std::process::Command::new("mkfifo").arg(folder.join("libfifo.so")).status();
    assert!(fifo.unwrap().success());
    symlink("/dev/zero", folder.join("libzero.so")).unwrap();
    symlink("libloop.so", folder.join("libloop.so")).unwrap();
    bundle.write("usr/lib64/libelf.so", b"\x7fELF\x02\x01\x01 and nothing more");
    library(&folder.join("libgood.so.1"), "libgood.so.1", 0);
    // A SONAME that would be a path.
    library(&folder.join("libbad.so.1"), "../../etc/shadow", 0);
    bundle.must(BOTH[0]);
    let cache = fs::read(bundle.root().join("etc/ld.so.cache")).unwrap();
    let text = String::from_utf8_lossy(&cache);
    assert!(text.contains("/usr/lib64/libgood.so.1"));
    assert!(text.contains("/usr/lib64/libbad.so.1"), "known by its file name");
    for name in ["shadow", "libfifo", "libzero", "libloop", "libelf"] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn a_cache_that_lies_about_its_size_is_dropped() {
    let bundle = Bundle::new();
    let mut cache = b"glibc-ld.so.cache1.1".to_vec();
    cache.extend([0xff; 44]);
    bundle.write("etc/ld.so.cache", cache);
    library(&bundle.root().join("usr/lib64/libgood.so.1"), "libgood.so.1", 0);
    bundle.must(BOTH[0]);
    let cache = fs::read(bundle.root().join("etc/ld.so.cache")).unwrap();
    assert_eq!(cache[20], 1, "one entry");
}

#[test]
fn the_hosts_root_is_never_touched() {
    let bundle = Bundle::new();
    fs::write(bundle.dir.path().join("config.json"), r#"{"root":{"path":"/"}}"#).unwrap();
    let output = bundle.call(BOTH[0]);
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("refusing"));
}
