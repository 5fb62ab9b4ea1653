//! The driver's user space: libraries with their links, programs, firmware, configuration.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::elf;
use super::layout::Paths;
use super::{StageError, StageOptions, Tree, make};
use crate::node::Node;
use crate::trailer;

/// Libraries named `NAME.so.VERSION`, with the suffix of the soname: `.1` means that the
/// soname is `NAME.so.1`, none that it is the file's own name.
const VERSIONED: [(&str, Option<u32>); 29] = [
    ("libEGL_nvidia", Some(0)),
    ("libGLESv1_CM_nvidia", Some(1)),
    ("libGLESv2_nvidia", Some(2)),
    ("libGLX_nvidia", Some(0)),
    ("libcuda", Some(1)),
    ("libcudadebugger", Some(1)),
    ("libnvcuvid", Some(1)),
    ("libnvidia-allocator", Some(1)),
    ("libnvidia-cfg", Some(1)),
    ("libnvidia-eglcore", None),
    ("libnvidia-encode", Some(1)),
    ("libnvidia-fbc", Some(1)),
    ("libnvidia-glcore", None),
    ("libnvidia-glsi", None),
    ("libnvidia-glvkspirv", None),
    ("libnvidia-gpucomp", None),
    ("libnvidia-gtk3", None),
    ("libnvidia-ngx", Some(1)),
    ("libnvidia-nvvm", Some(4)),
    ("libnvidia-opencl", Some(1)),
    ("libnvidia-opticalflow", Some(1)),
    ("libnvidia-pkcs11-openssl3", None),
    ("libnvidia-ptxjitcompiler", Some(1)),
    ("libnvidia-rtcore", None),
    ("libnvidia-sandboxutils", Some(1)),
    ("libnvidia-tls", None),
    ("libnvidia-vksc-core", Some(1)),
    ("libnvoptix", Some(1)),
    ("vdpau/libvdpau_nvidia", Some(1)),
];

/// Libraries with a version of their own, and their sonames.
const OTHERS: [(&str, &str); 4] = [
    ("libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1"),
    ("libnvidia-egl-wayland.so.1.1.20", "libnvidia-egl-wayland.so.1"),
    ("libnvidia-egl-xcb.so.1.0.3", "libnvidia-egl-xcb.so.1"),
    ("libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4"),
];

const PROGRAMS: [&str; 6] = [
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-smi",
];

/// Writes it; gives the path of `libnvidia-ml.so.1`.
pub(crate) fn write(
    tree: &Tree<'_>,
    paths: &Paths,
    node: &Node,
    options: &StageOptions<'_>,
) -> Result<PathBuf, StageError> {
    let driver = &node.driver.version;
    libraries(tree, paths.libraries, driver)?;
    let file = format!("{}/libnvidia-ml.so.{driver}", paths.libraries);
    let place = tree.parented(&file)?;
    copy(options.lib, &place)?;
    trailer::append(&place, node)?;
    let library = links(tree, paths.libraries, &format!("libnvidia-ml.so.{driver}"), "1")?;
    for name in PROGRAMS {
        let place = tree.parented(&format!("{}/{name}", paths.programs))?;
        let built = options.programs.map(|folder| folder.join(name)).filter(|file| file.is_file());
        match built {
            Some(built) => copy(&built, &place)?,
            None => placeholder(&place, name)?,
        }
    }
    for file in ["gsp_ga10x.bin", "gsp_tu10x.bin"] {
        let path = format!("{}/nvidia/{driver}/{file}", paths.firmware);
        tree.file(&path, "simulated firmware\n")?;
    }
    configuration(tree, paths)?;
    Ok(library)
}

fn libraries(tree: &Tree<'_>, folder: &str, driver: &str) -> Result<(), StageError> {
    for (name, soname) in VERSIONED {
        let (inner, base) = name.rsplit_once('/').unwrap_or(("", name));
        let folder = if inner.is_empty() { folder.to_owned() } else { format!("{folder}/{inner}") };
        let file = format!("{base}.so.{driver}");
        match soname {
            Some(number) => {
                let soname = format!("{base}.so.{number}");
                tree.file(&format!("{folder}/{file}"), elf::shared_object(&soname))?;
                links(tree, &folder, &file, &number.to_string())?;
            }
            None => tree.file(&format!("{folder}/{file}"), elf::shared_object(&file))?,
        }
    }
    for (file, soname) in OTHERS {
        tree.file(&format!("{folder}/{file}"), elf::shared_object(soname))?;
        if file != soname {
            tree.link(&format!("{folder}/{soname}"), file)?;
        }
    }
    Ok(())
}

/// `NAME.so.NUMBER` to the file and `NAME.so` to that; gives the path of the former.
fn links(tree: &Tree<'_>, folder: &str, file: &str, number: &str) -> Result<PathBuf, StageError> {
    let base = file.split_once(".so.").map_or(file, |(base, _)| base);
    let soname = format!("{base}.so.{number}");
    tree.link(&format!("{folder}/{soname}"), file)?;
    tree.link(&format!("{folder}/{base}.so"), &soname)?;
    Ok(tree.at(&format!("{folder}/{soname}")))
}

/// Copies, so that a rebuild doesn't change a staged machine; replaces what is there.
fn copy(from: &Path, to: &Path) -> Result<(), StageError> {
    let new = to.with_extension("new");
    fs::copy(from, &new).map_err(|source| StageError::Copy { path: from.to_owned(), source })?;
    fs::rename(&new, to).map_err(make(to))
}

fn placeholder(place: &Path, name: &str) -> Result<(), StageError> {
    let script = format!(
        "#!/bin/sh\necho '{name}: the driver is simulated and has no such program' >&2\nexit 1\n"
    );
    fs::write(place, script)
        .and_then(|()| fs::set_permissions(place, Permissions::from_mode(0o755)))
        .map_err(make(place))
}

fn configuration(tree: &Tree<'_>, paths: &Paths) -> Result<(), StageError> {
    let Paths { share, etc, .. } = paths;
    for (path, library) in [
        (format!("{share}/glvnd/egl_vendor.d/10_nvidia.json"), "libEGL_nvidia.so.0"),
        (
            format!("{share}/egl/egl_external_platform.d/10_nvidia_wayland.json"),
            "libnvidia-egl-wayland.so.1",
        ),
        (
            format!("{share}/egl/egl_external_platform.d/15_nvidia_gbm.json"),
            "libnvidia-egl-gbm.so.1",
        ),
        (format!("{etc}/vulkan/icd.d/nvidia_icd.json"), "libGLX_nvidia.so.0"),
        (format!("{etc}/vulkan/implicit_layer.d/nvidia_layers.json"), "libGLX_nvidia.so.0"),
    ] {
        let text = format!(
            "{{\n  \"file_format_version\": \"1.0.0\",\n  \"ICD\": {{\"library_path\": \"{library}\"}}\n}}\n"
        );
        tree.file(&path, text)?;
    }
    tree.file(&format!("{etc}/OpenCL/vendors/nvidia.icd"), "libnvidia-opencl.so.1\n")?;
    tree.file(&format!("{share}/nvidia/nvoptix.bin"), "simulated\n")
}
