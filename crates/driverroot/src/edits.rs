//! What was found, as CDI edits: the common part of a claim's spec, and each GPU's.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gpu_dra_cdi::{ContainerEdits, DeviceNode, DeviceType, HookName, Mount};
use gpu_dra_hook::args::{Action, Link};

use crate::error::HookMissing;
use crate::files::{DriverFiles, HostFile, Library};
use crate::mig::MigNodes;
use crate::nodes::{CharNode, CommonNodes, GpuNodes, Node};

/// Keeps nvidia-container-runtime, where it is the default runtime, from adding all GPUs
/// to images that ask for it.
const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES=void";

const FILE_OPTIONS: &[&str] = &["ro", "nosuid", "nodev", "rbind", "rprivate"];
const SOCKET_OPTIONS: &[&str] = &["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// Names under which programs load a library besides its SONAME.
const EXTRA_NAMES: &[(&str, &str)] = &[
    ("libcuda.so.1", "libcuda.so"),
    ("libnvidia-ml.so.1", "libnvidia-ml.so"),
    ("libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
    ("libGLX_nvidia.so.0", "libGLX_indirect.so.0"),
];

/// The container hook, known to be there: the runtime refuses to start a container whose
/// hook is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    host_path: String,
}

impl Hook {
    /// Checks that the hook is an executable file.
    ///
    /// `host` is its absolute path on the host, `here` the same file as this process sees
    /// it.
    ///
    /// # Errors
    /// It isn't, or the path isn't UTF-8.
    pub fn find(host: &Path, here: &Path) -> Result<Self, HookMissing> {
        let missing = |source| HookMissing { path: here.to_path_buf(), source };
        let metadata = std::fs::metadata(here).map_err(|error| missing(Some(error)))?;
        let executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        match host.to_str() {
            Some(host) if executable => Ok(Self { host_path: host.to_owned() }),
            _ => Err(missing(None)),
        }
    }

    fn call(&self, action: &Action) -> gpu_dra_cdi::Hook {
        gpu_dra_cdi::Hook {
            hook_name: HookName::CreateContainer,
            path: self.host_path.clone(),
            args: action.to_args(),
            env: Vec::new(),
            timeout: None,
        }
    }
}

/// What every container of a claim gets, whichever of its GPUs it uses.
#[must_use]
pub fn common_edits(files: &DriverFiles, nodes: &CommonNodes, hook: &Hook) -> ContainerEdits {
    let mut edits = node_edits(&nodes.nodes);
    edits.env.push(VISIBLE_DEVICES.to_owned());
    let libraries = files.libraries.iter().map(|library| &library.file);
    let read_only = libraries.chain(&files.programs).chain(&files.firmware).chain(&files.configs);
    edits.mounts.extend(read_only.map(|file| mount(file, FILE_OPTIONS)));
    edits.mounts.extend(files.sockets.iter().map(|file| mount(file, SOCKET_OPTIONS)));
    // Links first: the loader's cache is made of what is there.
    let links = library_links(&files.libraries);
    if !links.is_empty() {
        edits.hooks.push(hook.call(&Action::CreateLinks(links)));
    }
    edits.hooks.push(hook.call(&Action::UpdateLdcache(library_folders(&files.libraries))));
    edits.hooks.push(hook.call(&Action::DisableDeviceNodeModification));
    edits.sorted()
}

/// What a container gets that uses this GPU.
#[must_use]
pub fn gpu_edits(nodes: &GpuNodes, hook: &Hook) -> ContainerEdits {
    let mut edits = node_edits(&nodes.nodes);
    if !nodes.links.is_empty() {
        edits.hooks.push(hook.call(&Action::CreateLinks(nodes.links.clone())));
    }
    edits
}

/// What a container gets that uses this MIG device. DRM nodes stand for the whole GPU, so
/// they aren't among it, and no hook is needed.
#[must_use]
pub fn mig_edits(nodes: &MigNodes) -> ContainerEdits {
    node_edits(&nodes.nodes)
}

fn mount(file: &HostFile, options: &[&str]) -> Mount {
    Mount {
        host_path: file.host_path.clone(),
        container_path: file.container_path.clone(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        fs_type: None,
    }
}

fn node_edits(nodes: &[Node]) -> ContainerEdits {
    let mut edits = ContainerEdits::default();
    for node in nodes {
        match node {
            Node::Char(node) => {
                let (device, group) = device_node(node);
                edits.device_nodes.push(device);
                if let Some(group) = group.filter(|group| !edits.additional_gids.contains(group)) {
                    edits.additional_gids.push(group);
                }
            }
            Node::PlainFile(file) => edits.mounts.push(mount(file, FILE_OPTIONS)),
        }
    }
    edits
}

/// The node as CDI has it, and the group that a container's process needs to open it.
fn device_node(node: &CharNode) -> (DeviceNode, Option<u32>) {
    // Distributions give DRM nodes to groups, which mean nothing in a container; the
    // container was given the device, so its processes may open it. Groups would do too,
    // but only with CDI 0.7, which older runtimes refuse.
    let mode = if node.path.starts_with("/dev/dri/") { 0o666 } else { node.mode };
    let open_to_all = mode & 0o006 == 0o006;
    let device = DeviceNode {
        path: node.path.clone(),
        host_path: (node.host_path != node.path).then(|| node.host_path.clone()),
        device_type: DeviceType::Char,
        major: node.major,
        minor: node.minor,
        file_mode: Some(mode),
        permissions: Some("rwm".to_owned()),
        uid: (node.uid != 0).then_some(node.uid),
        gid: (node.gid != 0).then_some(node.gid),
    };
    (device, (!open_to_all && node.gid != 0).then_some(node.gid))
}

/// The names under which programs load the libraries.
fn library_links(libraries: &[Library]) -> Vec<Link> {
    let mut links = Vec::new();
    for library in libraries {
        let path = Path::new(&library.file.container_path);
        let (Some(folder), Some(soname)) = (path.parent(), &library.soname) else { continue };
        let mut link = |target: &str, name: &str| {
            let path = folder.join(name).to_string_lossy().into_owned();
            links.push(Link { target: target.to_owned(), path });
        };
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if name != soname => link(name, soname),
            _ => {}
        }
        for (_, extra) in EXTRA_NAMES.iter().filter(|(of, _)| of == soname) {
            link(soname, extra);
        }
        // GBM loads its back end by the DRM driver's name.
        if soname == "libnvidia-allocator.so.1" {
            link("../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so");
        }
    }
    links
}

fn library_folders(libraries: &[Library]) -> Vec<String> {
    let folders: BTreeSet<PathBuf> = libraries
        .iter()
        .filter_map(|library| Path::new(&library.file.container_path).parent())
        .map(Path::to_path_buf)
        .collect();
    folders.into_iter().map(|folder| folder.to_string_lossy().into_owned()).collect()
}
