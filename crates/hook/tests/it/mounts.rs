//! Root file systems that can't be written, and pods that mount the host's folders.

use std::fs;
use std::process::Command;

use crate::support::{Bundle, HOOK, is_root, library, pipe};

/// Calls the hook in a mount namespace of its own, after a line of shell.
fn call_after(bundle: &Bundle, mounts: &str, args: &str) -> (bool, String) {
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-ec"]);
    shell.arg(format!("cd {}; {mounts}; exec {HOOK} {args}", bundle.dir.path().display()));
    let output = pipe(shell, &bundle.state());
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_read_only_root_starts_with_a_warning() {
    if !is_root("a_read_only_root_starts_with_a_warning") {
        return;
    }
    let bundle = Bundle::new();
    bundle.write("etc/ld.so.conf", "");
    let read_only = "mount --bind rootfs rootfs; mount -o remount,bind,ro rootfs";
    for args in ["update-ldcache --folder /usr/lib64", "create-links --link b::/usr/lib64/a"] {
        let (started, text) = call_after(&bundle, read_only, args);
        assert!(started, "{text}");
        assert!(text.contains("Read-only file system"), "{text}");
    }
}

#[test]
fn the_hosts_etc_mounted_into_a_container_is_left_as_it_is() {
    if !is_root("the_hosts_etc_mounted_into_a_container_is_left_as_it_is") {
        return;
    }
    let bundle = Bundle::new();
    let host_etc = bundle.dir.path().join("host-etc");
    fs::create_dir(&host_etc).unwrap();
    fs::write(host_etc.join("ld.so.cache"), "the host's").unwrap();
    let mount = "mount --bind host-etc rootfs/etc";
    let (started, text) = call_after(&bundle, mount, "update-ldcache --folder /usr/lib64");
    assert!(started, "{text}");
    assert!(text.contains("/etc/ld.so.cache left as it is"), "{text}");
    assert_eq!(fs::read_to_string(host_etc.join("ld.so.cache")).unwrap(), "the host's");
    assert_eq!(fs::read_dir(&host_etc).unwrap().count(), 1);
}

/// The same with the host's libraries; the container's own `/dev` is a mount, too.
#[test]
fn links_are_made_on_no_mount_but_dev() {
    if !is_root("links_are_made_on_no_mount_but_dev") {
        return;
    }
    let bundle = Bundle::new();
    for folder in ["host-lib", "some-dev", "rootfs/dev"] {
        fs::create_dir(bundle.dir.path().join(folder)).unwrap();
    }
    let mounts = "mount --bind host-lib rootfs/usr/lib64; mount --bind some-dev rootfs/dev";
    let args = "create-links --link a::/usr/lib64/b --link ../a::/dev/dri/b";
    let (started, text) = call_after(&bundle, mounts, args);
    assert!(started, "{text}");
    assert!(text.contains("link /usr/lib64/b left out"), "{text}");
    assert_eq!(fs::read_dir(bundle.dir.path().join("host-lib")).unwrap().count(), 0);
    assert!(bundle.dir.path().join("some-dev/dri/b").is_symlink());
}

/// A pod may bring a library of its own by a mount, in the place of a link of ours.
#[test]
fn a_mount_in_a_links_place_stays() {
    if !is_root("a_mount_in_a_links_place_stays") {
        return;
    }
    let bundle = Bundle::new();
    bundle.write("usr/lib64/libcuda.so.1", "");
    library(&bundle.dir.path().join("own"), "libcuda.so.1", 0);
    let mount = "mount --bind own rootfs/usr/lib64/libcuda.so.1";
    let args = "create-links --link x::/usr/lib64/libcuda.so.1 --link y::/usr/lib64/next";
    let (started, text) = call_after(&bundle, mount, args);
    assert!(started, "{text}");
    assert!(text.contains("link /usr/lib64/libcuda.so.1 left out"), "{text}");
    assert!(bundle.root().join("usr/lib64/next").is_symlink(), "the others are made");
}

/// The parameters file of the driver is covered in the container, and there alone.
#[test]
fn the_driver_says_that_nodes_are_not_to_be_made() {
    if !is_root("the_driver_says_that_nodes_are_not_to_be_made") {
        return;
    }
    let bundle = Bundle::new();
    let params = "ResmanDebugLevel: 1\nModifyDeviceFiles: 1\n";
    bundle.write("proc/driver/nvidia/params", params);
    bundle.write("proc/driver/nvidia/version", "the driver's");
    let hook =
        "disable-device-node-modification; cd rootfs/proc/driver/nvidia; cat params version >&2";
    // `exec` would end the shell before it shows what the container sees.
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-ec"]);
    shell.arg(format!("cd {}; {HOOK} {hook}", bundle.dir.path().display()));
    let output = pipe(shell, &bundle.state());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "ResmanDebugLevel: 1\nModifyDeviceFiles: 0\nthe driver's");
    let outside = bundle.root().join("proc/driver/nvidia/params");
    assert_eq!(fs::read_to_string(outside).unwrap(), params);
}

#[test]
fn without_a_driver_there_is_nothing_to_say() {
    let bundle = Bundle::new();
    bundle.must(&["disable-device-node-modification"]);
}
