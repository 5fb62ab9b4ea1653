//! The names of our two sockets. Pure: nothing here touches the file system.
//!
//! | | one instance | rolling update (`id` from the pod's UID) |
//! |---|---|---|
//! | registration | `<root>/plugins_registry/<driver>@reg.sock` | `<driver>-<id>@reg.sock` |
//! | service | `<root>/plugins/<driver>/dra@plugin.sock` | `dra-<id>@plugin.sock` |
//!
//! # Why there is an `@` in the names: don't clean it up
//!
//! The kubelet dials the registration socket by its bare path, and grpc-go then sends the
//! percent-encoded path as HTTP/2 `:authority` (kubernetes/kubernetes#109081; still so in
//! 1.36). The `http` crate refuses `%` in a host, and h2 resets the stream before our code
//! sees it: with a name like `gpu.nvidia.com-reg.sock` the driver never registers. grpc-go
//! leaves `@` as it is, so that with `…@reg.sock` the path becomes user information, where
//! `%` is allowed, and `reg.sock` the host. The kubelet has no rule about the base name but
//! that it may not begin with a dot.
//!
//! | who dials | `:authority` | plain name | name with `@` |
//! |---|---|---|---|
//! | kubelet, registration | `%2F…` | refused | served |
//! | kubelet 1.36, service (`unix:` target) | `localhost` | served | served |
//! | older kubelets, service (bare path) | `%2F…` | refused | served |
//! | grpcurl and other C-core clients | `%2F…` | refused | served |
//!
//! The service socket would do without in a current kubelet, but the `@` is served in every
//! row of the table and costs nothing: the kubelet takes the path from `GetInfo`.
//!
//! # One path, inside and outside
//!
//! The kubelet dials the path that we tell it, so that its directories must be mounted in
//! our container at the very path that they have on the host, and the root must be absolute.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gpu_dra_model::DriverName;
use sha2::{Digest as _, Sha256};

/// The longest path of a unix socket in bytes: `sun_path` is 108 with its NUL.
pub const MAX_SOCKET_PATH: usize = 107;

/// How many characters the hash of a pod's UID has in a socket's name.
const INSTANCE_LEN: usize = 11;

const REGISTRATION_SUFFIX: &str = "@reg.sock";
const SERVICE_SUFFIX: &str = "@plugin.sock";

/// Where our sockets are. All paths are the same for the kubelet and for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    driver: DriverName,
    kubelet_root: PathBuf,
    registration: PathBuf,
    service: PathBuf,
    endpoint: String,
}

/// No usable socket path can be made of the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    /// The kubelet couldn't find us by a relative path.
    #[error("kubelet root {} is not absolute: give the kubelet's --root-dir as it is on the host", .0.display())]
    Relative(PathBuf),
    /// Protobuf strings, and with them `PluginInfo.endpoint`, are UTF-8.
    #[error("kubelet root {} is not UTF-8: the kubelet can't be told a path in it", .0.display())]
    NotUtf8(PathBuf),
    /// A second `@` in the authority makes the path unusable for registration.
    #[error("kubelet root {} contains '@': the kubelet's call to a socket in it can't be parsed", .0.display())]
    At(PathBuf),
    /// The kernel's limit for socket paths.
    #[error("{} has {length} bytes, {MAX_SOCKET_PATH} is the limit: shorten the driver's name or the kubelet root", path.display())]
    TooLong {
        /// The path that would be needed.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
}

impl Paths {
    /// The sockets of an instance of `driver`. `pod_uid` is given when two instances may
    /// run side by side (a DaemonSet with `maxSurge`), so that each has names of its own.
    ///
    /// # Errors
    /// When the root is not absolute, not UTF-8 or has an `@`, or a path gets too long.
    pub fn new(
        kubelet_root: &Path,
        driver: &DriverName,
        pod_uid: Option<&str>,
    ) -> Result<Self, PathsError> {
        let root = || kubelet_root.to_path_buf();
        if !kubelet_root.is_absolute() {
            return Err(PathsError::Relative(root()));
        }
        if kubelet_root.as_os_str().as_bytes().contains(&b'@') {
            return Err(PathsError::At(root()));
        }
        let instance = pod_uid.map_or_else(String::new, |uid| format!("-{}", instance_id(uid)));
        let registration = kubelet_root
            .join("plugins_registry")
            .join(format!("{driver}{instance}{REGISTRATION_SUFFIX}"));
        let service = kubelet_root
            .join("plugins")
            .join(driver.as_str())
            .join(format!("dra{instance}{SERVICE_SUFFIX}"));
        for path in [&registration, &service] {
            let length = path.as_os_str().len();
            if length > MAX_SOCKET_PATH {
                return Err(PathsError::TooLong { path: path.clone(), length });
            }
        }
        let endpoint = service.to_str().ok_or_else(|| PathsError::NotUtf8(root()))?.to_owned();
        Ok(Self { driver: driver.clone(), kubelet_root: root(), registration, service, endpoint })
    }

    /// The driver whose sockets these are.
    #[must_use]
    pub fn driver(&self) -> &DriverName {
        &self.driver
    }

    /// The kubelet's `--root-dir`.
    #[must_use]
    pub fn kubelet_root(&self) -> &Path {
        &self.kubelet_root
    }

    /// The socket on which the kubelet asks who we are.
    #[must_use]
    pub fn registration(&self) -> &Path {
        &self.registration
    }

    /// The socket on which claims are prepared and health is watched.
    #[must_use]
    pub fn service(&self) -> &Path {
        &self.service
    }

    /// [`service`](Self::service) as text, for `PluginInfo.endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether `name`, in the registration directory, could be of any instance of this driver.
    #[must_use]
    pub fn is_registration_name(&self, name: &str) -> bool {
        name.strip_prefix(self.driver.as_str()).is_some_and(|rest| is_of(rest, REGISTRATION_SUFFIX))
    }

    /// Whether `name`, in the driver's plugin directory, could be of any instance of this driver.
    #[must_use]
    pub fn is_service_name(&self, name: &str) -> bool {
        name.strip_prefix("dra").is_some_and(|rest| is_of(rest, SERVICE_SUFFIX))
    }
}

/// 64 bits of the UID's hash in base64url: a UID itself (36 bytes) would not leave a long
/// driver name enough of the 107, and the alphabet is fit for an authority.
fn instance_id(pod_uid: &str) -> String {
    let digest = Sha256::digest(pod_uid.as_bytes());
    URL_SAFE_NO_PAD.encode(digest.get(..8).unwrap_or_default())
}

fn is_of(rest: &str, suffix: &str) -> bool {
    let Some(instance) = rest.strip_suffix(suffix) else { return false };
    instance.is_empty()
        || instance.strip_prefix('-').is_some_and(|id| {
            id.len() == INSTANCE_LEN
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01";

    fn driver(name: &str) -> DriverName {
        DriverName::new(name).unwrap()
    }

    fn paths(pod_uid: Option<&str>) -> Paths {
        Paths::new(Path::new("/var/lib/kubelet"), &driver("gpu.nvidia.com"), pod_uid).unwrap()
    }

    #[test]
    fn one_instance_has_plain_names() {
        let paths = paths(None);
        assert_eq!(
            paths.registration(),
            Path::new("/var/lib/kubelet/plugins_registry/gpu.nvidia.com@reg.sock")
        );
        assert_eq!(paths.endpoint(), "/var/lib/kubelet/plugins/gpu.nvidia.com/dra@plugin.sock");
        assert_eq!(paths.service(), Path::new(paths.endpoint()));
    }

    // The id: `printf %s UID | sha256sum`, the first 16 hex digits as bytes, in base64url.
    #[test]
    fn rolling_instances_have_names_of_their_own() {
        let one = paths(Some(UID));
        let id = instance_id(UID);
        assert_eq!(id, "74S8sWjpfN4");
        assert_eq!(
            one.registration().to_str().unwrap(),
            format!("/var/lib/kubelet/plugins_registry/gpu.nvidia.com-{id}@reg.sock")
        );
        assert_eq!(
            one.endpoint(),
            format!("/var/lib/kubelet/plugins/gpu.nvidia.com/dra-{id}@plugin.sock")
        );
        let other = paths(Some("11111111-2b7e-4c55-9d1f-6a0d6b1e4c01"));
        assert_ne!(one.registration(), other.registration());
        assert_ne!(one.service(), other.service());
    }

    /// The reason is in the module's documentation: without it no kubelet registers us.
    #[test]
    fn every_socket_name_has_exactly_one_at_and_then_a_host_name() {
        for pod_uid in [None, Some(UID), Some(""), Some("x/y@z")] {
            let paths = paths(pod_uid);
            for path in [paths.registration(), paths.service()] {
                let text = path.to_str().unwrap();
                assert_eq!(text.matches('@').count(), 1, "{text}");
                let (_, host) = text.split_once('@').unwrap();
                assert!(
                    host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-'),
                    "{text}"
                );
                assert!(!path.file_name().unwrap().to_str().unwrap().starts_with('.'));
            }
        }
    }

    #[test]
    fn the_limit_is_107_bytes() {
        let driver = driver("gpu.nvidia.com");
        let room = MAX_SOCKET_PATH - "/plugins_registry/gpu.nvidia.com@reg.sock".len();
        let root = |length: usize| PathBuf::from(format!("/{}", "r".repeat(length - 1)));
        let longest = Paths::new(&root(room), &driver, None).unwrap();
        assert_eq!(longest.registration().as_os_str().len(), MAX_SOCKET_PATH);
        let error = Paths::new(&root(room + 1), &driver, None).unwrap_err();
        assert!(matches!(error, PathsError::TooLong { length: 108, .. }), "{error}");
        assert!(error.to_string().contains("107 is the limit"), "{error}");
        assert!(error.to_string().contains("driver's name"), "{error}");

        // The kernel agrees.
        let bind = |path: &Path| std::os::unix::net::SocketAddr::from_pathname(path);
        assert!(bind(longest.registration()).is_ok());
        assert!(bind(&longest.registration().with_extension("sockx")).is_err());
    }

    #[test]
    fn roots_that_can_not_work_are_refused() {
        use std::os::unix::ffi::OsStringExt as _;

        let driver = driver("gpu.nvidia.com");
        let error = |root: &Path| Paths::new(root, &driver, None).unwrap_err();
        assert!(matches!(error(Path::new("kubelet")), PathsError::Relative(_)));
        assert!(matches!(error(Path::new("/var/a@b")), PathsError::At(_)));
        let latin1 = PathBuf::from(std::ffi::OsString::from_vec(b"/var/k\xfcbelet".to_vec()));
        assert!(matches!(error(&latin1), PathsError::NotUtf8(_)));
    }

    #[test]
    fn names_of_other_drivers_are_not_ours() {
        let paths = paths(None);
        for ours in [
            "gpu.nvidia.com@reg.sock",
            "gpu.nvidia.com-aB3_-6789ab@reg.sock",
            &format!("gpu.nvidia.com-{}@reg.sock", instance_id(UID)),
        ] {
            assert!(paths.is_registration_name(ours), "{ours}");
        }
        for other in [
            "gpu.nvidia.com-reg.sock",
            "gpu.nvidia.com-extra@reg.sock",
            "gpu.nvidia.company@reg.sock",
            "compute-domain.nvidia.com@reg.sock",
            "gpu.nvidia.com@plugin.sock",
        ] {
            assert!(!paths.is_registration_name(other), "{other}");
        }
        assert!(paths.is_service_name("dra@plugin.sock"));
        assert!(paths.is_service_name("dra-aB3_-6789ab@plugin.sock"));
        assert!(!paths.is_service_name("dra.sock"));
        assert!(!paths.is_service_name("mps@plugin.sock"));
    }
}
