//! Where the container's root file system is, as the OCI runtime tells a hook: the state on
//! standard input names the bundle, whose `config.json` names the root.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::HookError;

/// Far above any real state or configuration; below what would hurt the host.
const LARGEST_INPUT: u64 = 32 * 1024 * 1024;

#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

#[derive(Deserialize)]
struct Config {
    root: Root,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

pub(crate) fn rootfs(stdin: impl Read) -> Result<PathBuf, HookError> {
    let state = Path::new("standard input");
    let State { bundle } = decode("the state on standard input", state, stdin)?;
    let config_path = bundle.join("config.json");
    let config = File::open(&config_path).map_err(|source| HookError::Io {
        what: "open",
        path: config_path.clone(),
        source,
    })?;
    let Config { root } = decode("config.json of the bundle", &config_path, config)?;
    // A relative path is relative to the bundle; `join` leaves an absolute one alone.
    let rootfs = bundle.join(root.path);
    if same_folder(&rootfs, Path::new("/"))? {
        return Err(HookError::HostRoot { path: rootfs });
    }
    Ok(rootfs)
}

fn decode<T: for<'de> Deserialize<'de>>(
    what: &'static str,
    path: &Path,
    input: impl Read,
) -> Result<T, HookError> {
    let mut bytes = Vec::new();
    input.take(LARGEST_INPUT).read_to_end(&mut bytes).map_err(|source| HookError::Io {
        what: "read",
        path: path.to_path_buf(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|source| HookError::BadInput { what, source })
}

fn same_folder(one: &Path, other: &Path) -> Result<bool, HookError> {
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .map(|metadata| (metadata.dev(), metadata.ino()))
            .map_err(|source| HookError::Io { what: "look at", path: path.to_path_buf(), source })
    };
    Ok(identity(one)? == identity(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(root: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("rootfs")).unwrap();
        let config =
            format!(r#"{{"ociVersion":"1.0.2","root":{{"path":{root:?},"readonly":true}}}}"#);
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        let state = format!(r#"{{"id":"c","status":"created","pid":7,"bundle":{:?}}}"#, dir.path());
        (dir, state)
    }

    #[test]
    fn a_relative_root_lies_in_the_bundle() {
        let (dir, state) = bundle("rootfs");
        assert_eq!(rootfs(state.as_bytes()).unwrap(), dir.path().join("rootfs"));
    }

    #[test]
    fn the_hosts_root_is_refused_by_any_name() {
        for root in ["/", "/proc/../", "/./"] {
            let (_dir, state) = bundle(root);
            assert!(matches!(rootfs(state.as_bytes()), Err(HookError::HostRoot { .. })), "{root}");
        }
    }

    #[test]
    fn malformed_input_has_an_error() {
        for state in ["", "{}", "[]", r#"{"bundle":7}"#] {
            let error = rootfs(state.as_bytes()).unwrap_err();
            assert!(matches!(error, HookError::BadInput { .. }), "{state}");
        }
        let missing = rootfs(&br#"{"bundle":"/nowhere"}"#[..]).unwrap_err();
        assert!(matches!(missing, HookError::Io { .. }));
    }
}
