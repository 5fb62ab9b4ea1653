//! Where drivers put their files, as tables of paths from the driver root.

use std::path::{Path, PathBuf};

use gpu_dra_hook::inroot::InRoot;

/// How a driver root is organised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Like a system's `/`: files appear in the container where they are in the root.
    System,
    /// Only `bin`, `lib64` and the like, as GKE's installer leaves them. They appear under
    /// `/usr/local/nvidia`, where GKE's own device plugin puts them and where CUDA images
    /// have their `PATH` and `LD_LIBRARY_PATH` point.
    Flat,
}

/// Folders with shared libraries, in the order of search. One that is the same as an
/// earlier one (`/lib64` on most systems) is looked at once.
const SYSTEM_LIBRARIES: &[&str] = &[
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    // Debian's own packages.
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib64/nvidia",
    // Arch; 32-bit libraries on Fedora, which are skipped.
    "usr/lib",
    // Talos.
    "usr/local/glibc/usr/lib",
    "usr/local/glibc/lib",
];

/// Bottlerocket has its system under this prefix and the driver in a folder of its own,
/// which older releases divide by version.
const BOTTLEROCKET_LIBRARIES: &[&str] = &[
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
];

const BOTTLEROCKET_PROGRAMS: &[&str] = &[
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
];

const SYSTEM_PROGRAMS: &[&str] =
    &["usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "opt/bin", "opt/nvidia/bin"];

/// Programs that a container gets (nvidia-container-toolkit's list).
pub(crate) const PROGRAMS: &[&str] = &[
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];

/// Configuration: the path below any of [`Layout::config_folders`], and the folder in the
/// container below which it appears.
pub(crate) const CONFIGS: &[(&str, &str)] = &[
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share"),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share"),
    ("egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share"),
    ("nvidia/nvoptix.bin", "/usr/share"),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share"),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share"),
    ("OpenCL/vendors/nvidia.icd", "/etc"),
    ("vulkan/icd.d/nvidia_icd.json", "/etc"),
    ("vulkan/icd.d/nvidia_layers.json", "/etc"),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc"),
];

/// Folders of the X server's modules, each with `drivers/nvidia_drv.so` and
/// `extensions/libglxserver_nvidia.so.<version>`.
pub(crate) const XORG_MODULES: &[&str] =
    &["usr/lib/xorg/modules", "usr/lib64/xorg/modules", "usr/lib/x86_64-linux-gnu/nvidia/xorg"];

/// Sockets of the driver's daemons. `/tmp/nvidia-mps` isn't among them: an MPS daemon
/// belongs to a claim, which mounts its own.
pub(crate) const SOCKETS: &[&str] =
    &["run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"];

impl Layout {
    pub(crate) fn of(tree: &InRoot) -> Self {
        let has_usr = tree.find(Path::new("usr")).is_ok_and(|usr| usr.metadata.is_dir());
        let has_prefix =
            BOTTLEROCKET_LIBRARIES.iter().any(|path| tree.find(Path::new(path)).is_ok());
        if has_usr || has_prefix { Self::System } else { Self::Flat }
    }

    /// The folders that may hold the driver's libraries. `subfolders` lists a folder, for
    /// the layouts that have one folder for each version.
    pub(crate) fn library_folders(
        self,
        mut subfolders: impl FnMut(&Path) -> Vec<PathBuf>,
    ) -> Vec<PathBuf> {
        match self {
            Self::Flat => ["lib64", "lib"].map(PathBuf::from).to_vec(),
            Self::System => {
                let mut folders: Vec<PathBuf> =
                    SYSTEM_LIBRARIES.iter().map(PathBuf::from).collect();
                for folder in BOTTLEROCKET_LIBRARIES.iter().map(PathBuf::from) {
                    let below = subfolders(&folder);
                    folders.push(folder);
                    folders.extend(below);
                }
                folders
            }
        }
    }

    /// The folders that may hold the driver's programs.
    pub(crate) fn program_folders(self, version: &str) -> Vec<PathBuf> {
        match self {
            Self::Flat => vec![PathBuf::from("bin")],
            Self::System => {
                let bottlerocket = BOTTLEROCKET_PROGRAMS.iter().map(Path::new);
                SYSTEM_PROGRAMS
                    .iter()
                    .map(PathBuf::from)
                    .chain(bottlerocket.flat_map(|path| [path.to_path_buf(), path.join(version)]))
                    .collect()
            }
        }
    }

    /// The folder in which a container finds the programs.
    pub(crate) fn program_destination(self) -> &'static str {
        match self {
            Self::System => "/usr/bin",
            Self::Flat => "/usr/local/nvidia/bin",
        }
    }

    /// The folders that may hold GSP firmware of this version.
    pub(crate) fn firmware_folders(self, version: &str) -> Vec<PathBuf> {
        let bases: &[&str] = match self {
            Self::System => &["lib/firmware/updates", "lib/firmware", "usr/lib/firmware"],
            Self::Flat => &["firmware"],
        };
        bases.iter().map(|base| Path::new(base).join("nvidia").join(version)).collect()
    }

    /// The folders below which [`CONFIGS`] are looked for.
    pub(crate) fn config_folders(self) -> &'static [&'static str] {
        match self {
            Self::System => &["etc", "usr/share", "usr/local/share"],
            Self::Flat => &["", "share", "etc"],
        }
    }

    /// Where a container sees a folder of the root.
    pub(crate) fn in_container(self, folder: &Path) -> PathBuf {
        match self {
            Self::System => Path::new("/").join(folder),
            Self::Flat => Path::new("/usr/local/nvidia").join(folder),
        }
    }
}
