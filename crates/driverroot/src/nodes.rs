//! Device nodes of GPUs, checked to be what they must be before a spec names them.
//!
//! A node that is missing, or that belongs to another load of the driver, would give a
//! container that starts and then fails far from the cause.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use gpu_dra_hook::args::Link;
use gpu_dra_hook::inroot::InRoot;
use gpu_dra_model::ids::{Minor, PciBusId};

use crate::create;
use crate::drm;
use crate::error::NodeError;
use crate::files::HostFile;
use crate::kernel::{MODESET_MINOR, NVIDIA_MAJOR, NVIDIACTL_MINOR, char_major};
use crate::root::DriverRoot;

/// What to do about device nodes that aren't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceNodes {
    /// Fail: something else (udev, nvidia-modprobe) makes them.
    MustExist,
    /// Make them by the kernel's numbers, as nvidia-modprobe would: on a fresh node no
    /// program of the driver has run yet. Needs CAP_MKNOD.
    CreateMissing,
    /// Simulation only: a regular file in a node's place stands for it and is mounted
    /// instead, since making device nodes needs root. Never set on a node with GPUs.
    AllowPlainFiles,
}

/// Something in a container's `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A character device.
    Char(CharNode),
    /// Simulation only: a regular file that stands for a device.
    PlainFile(HostFile),
}

impl Node {
    /// Where a container sees it, e.g. `/dev/nvidia0`.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Char(node) => &node.path,
            Self::PlainFile(file) => &file.container_path,
        }
    }
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharNode {
    /// Where a container and the node's own programs see it, e.g. `/dev/nvidia0`.
    pub path: String,
    /// Where the host has it, e.g. `/run/nvidia/driver/dev/nvidia0`.
    pub host_path: String,
    /// The kernel's major number.
    pub major: u32,
    /// The kernel's minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The nodes that every container with a GPU gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonNodes {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Optional ones that aren't there.
    pub absent: Vec<String>,
}

/// The nodes of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuNodes {
    /// `/dev/nvidia<minor>` first, then its DRM nodes.
    pub nodes: Vec<Node>,
    /// The names by PCI address that programs find DRM nodes under.
    pub links: Vec<Link>,
    /// DRM nodes that the kernel has but `/dev` doesn't.
    pub absent: Vec<String>,
}

/// Finds the device nodes that belong to a driver root.
#[derive(Debug, Clone)]
pub struct NodeFinder {
    /// The driver root; it decides which `dev` is looked into.
    pub root: DriverRoot,
    /// What to do about missing ones.
    pub policy: DeviceNodes,
    /// The proc file system, `/proc` but in simulations.
    pub proc: PathBuf,
    /// The sys file system, `/sys` but in simulations.
    pub sys: PathBuf,
}

/// Major and minor that a node must have, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl NodeFinder {
    /// With the system's own `/proc` and `/sys`.
    #[must_use]
    pub fn new(root: DriverRoot, policy: DeviceNodes) -> Self {
        Self { root, policy, proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }

    /// `/dev/nvidiactl`, `/dev/nvidia-uvm`, `/dev/nvidia-uvm-tools`, and
    /// `/dev/nvidia-modeset` where it exists.
    ///
    /// # Errors
    /// A node that is missing or wrong; the module nvidia-uvm that isn't loaded, without
    /// which no CUDA program starts.
    pub fn common(&self) -> Result<CommonNodes, NodeError> {
        let dev = self.open_dev()?;
        let devices = self.proc_devices()?;
        let nvidia = nvidia_major(&devices);
        let mut nodes = vec![dev.required(
            "nvidiactl",
            Some(Numbers { major: nvidia, minor: NVIDIACTL_MINOR }),
            self,
        )?];
        let uvm = char_major(&devices, &["nvidia-uvm"]);
        if uvm.is_none() && self.policy != DeviceNodes::AllowPlainFiles {
            return Err(NodeError::UvmNotLoaded);
        }
        for (name, minor) in [("nvidia-uvm", 0), ("nvidia-uvm-tools", 1)] {
            nodes.push(dev.required(name, uvm.map(|major| Numbers { major, minor }), self)?);
        }
        let mut absent = Vec::new();
        let modeset = Numbers { major: nvidia, minor: MODESET_MINOR };
        match dev.find("nvidia-modeset", Some(modeset), self.policy)? {
            Some(node) => nodes.push(node),
            None => absent.push("/dev/nvidia-modeset".to_owned()),
        }
        Ok(CommonNodes { nodes, absent })
    }

    /// The nodes of the GPU with this minor number, and those of its DRM device, which
    /// sysfs names by its PCI address.
    ///
    /// # Errors
    /// `/dev/nvidia<minor>` is missing or wrong, or a DRM node is wrong.
    pub fn gpu(&self, minor: Minor, pci: &PciBusId) -> Result<GpuNodes, NodeError> {
        let dev = self.open_dev()?;
        let gpu = self.gpu_node(&dev, &self.proc_devices()?, minor)?;
        let mut found = GpuNodes { nodes: vec![gpu], links: Vec::new(), absent: Vec::new() };
        for device in drm::devices(&self.sys, pci)? {
            match dev.find(&device.dev_name(), device.numbers, self.policy)? {
                Some(node) => {
                    found.links.push(device.link(pci));
                    found.nodes.push(node);
                }
                None => found.absent.push(format!("/dev/{}", device.dev_name())),
            }
        }
        Ok(found)
    }

    /// `/dev/nvidia<minor>`; `devices` is the text of `/proc/devices`.
    pub(crate) fn gpu_node(
        &self,
        dev: &Dev,
        devices: &str,
        minor: Minor,
    ) -> Result<Node, NodeError> {
        let numbers = Numbers { major: nvidia_major(devices), minor: minor.0 };
        dev.required(&format!("nvidia{minor}"), Some(numbers), self)
    }

    /// Opens the driver root if it has a `dev` folder (a driver container's `/dev` is the
    /// host's), else the host's `/`.
    pub(crate) fn open_dev(&self) -> Result<Dev, NodeError> {
        if let Ok(tree) = InRoot::open(&self.root.here)
            && tree.find(Path::new("dev")).is_ok_and(|dev| dev.metadata.is_dir())
        {
            return Ok(Dev { tree, host: self.root.host.clone() });
        }
        let path = &self.root.host_root;
        match InRoot::open(path) {
            Ok(tree) => Ok(Dev { tree, host: PathBuf::from("/") }),
            Err(source) => Err(NodeError::Io { path: path.clone(), source }),
        }
    }

    pub(crate) fn proc_devices(&self) -> Result<String, NodeError> {
        let path = self.proc.join("devices");
        std::fs::read_to_string(&path).map_err(|source| NodeError::Io { path, source })
    }
}

fn nvidia_major(devices: &str) -> u32 {
    char_major(devices, &["nvidia", "nvidia-frontend"]).unwrap_or(NVIDIA_MAJOR)
}

/// An open root with the `dev` folder in question.
pub(crate) struct Dev {
    pub(crate) tree: InRoot,
    /// The root as the host sees it.
    host: PathBuf,
}

impl Dev {
    fn required(
        &self,
        name: &str,
        numbers: Option<Numbers>,
        finder: &NodeFinder,
    ) -> Result<Node, NodeError> {
        if let Some(node) = self.find(name, numbers, finder.policy)? {
            return Ok(node);
        }
        if let (DeviceNodes::CreateMissing, Some(numbers)) = (finder.policy, numbers) {
            create::node(self, name, numbers, &finder.proc)?;
            if let Some(node) = self.find(name, Some(numbers), finder.policy)? {
                return Ok(node);
            }
        }
        Err(NodeError::Missing { path: self.host_path(name) })
    }

    /// The node below `dev`, checked; `None` where nothing has its name.
    pub(crate) fn find(
        &self,
        name: &str,
        numbers: Option<Numbers>,
        policy: DeviceNodes,
    ) -> Result<Option<Node>, NodeError> {
        let found = match self.tree.find(&Path::new("dev").join(name)) {
            Ok(found) => found,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(source) => return Err(NodeError::Io { path: self.host_path(name), source }),
        };
        let metadata = &found.metadata;
        let path = format!("/dev/{name}");
        let host_path = self.host_path(name);
        if metadata.file_type().is_char_device() {
            self.char_node(name, path, metadata, numbers).map(|node| Some(Node::Char(node)))
        } else if metadata.is_file() && policy == DeviceNodes::AllowPlainFiles {
            let host_path = host_path.to_string_lossy().into_owned();
            Ok(Some(Node::PlainFile(HostFile { host_path, container_path: path })))
        } else {
            Err(NodeError::NotADevice { path: host_path })
        }
    }

    fn char_node(
        &self,
        name: &str,
        path: String,
        metadata: &Metadata,
        wanted: Option<Numbers>,
    ) -> Result<CharNode, NodeError> {
        let device = metadata.rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        if let Some(wanted) = wanted
            && (wanted.major, wanted.minor) != (major, minor)
        {
            return Err(NodeError::WrongNumbers {
                path: self.host_path(name),
                found: (major, minor),
                wanted: (wanted.major, wanted.minor),
            });
        }
        Ok(CharNode {
            path,
            host_path: self.host_path(name).to_string_lossy().into_owned(),
            major,
            minor,
            mode: metadata.mode() & 0o777,
            uid: metadata.uid(),
            gid: metadata.gid(),
        })
    }

    pub(crate) fn host_path(&self, name: &str) -> PathBuf {
        self.host.join("dev").join(name)
    }
}
