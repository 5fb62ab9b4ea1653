//! What the container runtime's own configuration says of CDI, as far as its files can be read:
//! without the runtime's socket, which is as good as root on the node. `requirements` judges.
//!
//! It looks for two keys that mean one thing wherever they stand, and is no TOML parser: a file
//! that it misreads leads to a sentence, never to a refusal.

use std::path::{Path, PathBuf};

/// The folder of containerd's additions, and CRI-O's.
const FOLDERS: [&str; 2] = ["etc/containerd/conf.d", "etc/crio/crio.conf.d"];
/// The main files, which come before the additions of their folder.
const FILES: [&str; 2] = ["etc/containerd/config.toml", "etc/crio/crio.conf"];
/// A configuration is a few KiB.
const MOST: u64 = 1 << 20;

/// What the files of the container runtime say, the last word of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// `enable_cdi` of containerd's CRI plugin, and the file that says so.
    pub enable_cdi: Option<(bool, PathBuf)>,
    /// `cdi_spec_dirs` of containerd or CRI-O, and the file that says so.
    pub cdi_spec_dirs: Option<(Vec<String>, PathBuf)>,
}

impl RuntimeConfig {
    /// Reads what lies below the host's root as this process sees it. None where no
    /// configuration can be read: the runtime is another, or has its files elsewhere.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let mut files = Vec::new();
        for (file, folder) in FILES.iter().zip(FOLDERS) {
            files.push((*file).to_owned());
            let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<_> = names.map(|name| format!("{folder}/{name}")).collect();
            names.sort();
            files.extend(names);
        }
        let mut config = None;
        for file in files {
            let path = root.join(&file);
            // A device or a pipe in place of a file must not hold anything up.
            let is_file = path.metadata().is_ok_and(|data| data.is_file() && data.len() <= MOST);
            match std::fs::read_to_string(&path) {
                Ok(text) if is_file => {
                    let config = config.get_or_insert_with(Self::default);
                    config.add(&text, &Path::new("/").join(file));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(file = %path.display(), %error, "no configuration of a runtime");
                }
            }
        }
        config
    }

    /// Takes in one file more, whose words count more than those before.
    pub fn add(&mut self, text: &str, file: &Path) {
        if let Some(value) = value_of(text, "enable_cdi") {
            match value.as_str() {
                "true" => self.enable_cdi = Some((true, file.to_owned())),
                "false" => self.enable_cdi = Some((false, file.to_owned())),
                _ => {}
            }
        }
        if let Some(value) = value_of(text, "cdi_spec_dirs") {
            self.cdi_spec_dirs = Some((strings(&value), file.to_owned()));
        }
    }
}

/// The last value of a key: the rest of its line, or of all lines up to the end of its array;
/// without comments.
fn value_of(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines().map(without_comment);
    let mut found = None;
    while let Some(line) = lines.next() {
        let Some((name, value)) = line.split_once('=') else { continue };
        // A dotted key ends with it; a quoted one is the same.
        let name = name.trim().rsplit('.').next().unwrap_or_default();
        if name.trim().trim_matches(['"', '\'']) != key {
            continue;
        }
        let mut value = value.trim().to_owned();
        while value.starts_with('[') && !value.ends_with(']') {
            let Some(more) = lines.next() else { break };
            value.push_str(more.trim());
        }
        found = Some(value);
    }
    found
}

/// The line up to a `#` that isn't in a string.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let comment = line.char_indices().find(|(_, c)| {
        match (quote, *c) {
            (None, '#') => return true,
            (None, '"' | '\'') => quote = Some(*c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        false
    });
    comment.and_then(|(at, _)| line.get(..at)).unwrap_or(line)
}

/// The strings of an array.
fn strings(array: &str) -> Vec<String> {
    let items = array.trim_start_matches('[').trim_end_matches(']').split(',');
    let items = items.map(|item| item.trim().trim_matches(['"', '\'']).to_owned());
    items.filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str]) -> RuntimeConfig {
        let mut config = RuntimeConfig::default();
        for (nth, text) in files.iter().enumerate() {
            config.add(text, Path::new(&format!("/etc/{nth}.toml")));
        }
        config
    }

    #[test]
    fn the_last_word_on_cdi_is_found_in_files_as_they_are() {
        // containerd 1.7, 2.x, CRI-O; comments, arrays over lines, additions.
        let seven = "version = 2\n[plugins]\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    \
                     enable_cdi = true # on\n    cdi_spec_dirs = [\"/etc/cdi\", \"/var/run/cdi\"]\n";
        let two = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = false\n  \
                   cdi_spec_dirs = [\n    '/etc/cdi', # first\n    '/run/cdi',\n  ]\n";
        let crio = "[crio.runtime]\ncdi_spec_dirs = [\n\t\"/etc/cdi\",\n]\n# enable_cdi = false\n";
        let dotted = "plugins.\"io.containerd.grpc.v1.cri\".enable_cdi = true\n";
        for (files, enabled, dirs) in [
            (vec![seven], Some(true), Some(vec!["/etc/cdi", "/var/run/cdi"])),
            (vec![two], Some(false), Some(vec!["/etc/cdi", "/run/cdi"])),
            (vec![two, dotted], Some(true), Some(vec!["/etc/cdi", "/run/cdi"])),
            (vec![crio], None, Some(vec!["/etc/cdi"])),
            (vec!["version = 2\n#enable_cdi = true\n"], None, None),
            (vec!["enable_cdi = maybe\ncdi_spec_dirs = []\n"], None, Some(vec![])),
            (
                vec!["not_enable_cdi = true\n", "enable_cdi\n", "cdi_spec_dirs = [\n\"/a\","],
                None,
                Some(vec!["/a"]),
            ),
            (vec!["root = \"/x#y\"\n\u{0}\u{fffd}==="], None, None),
        ] {
            let config = of(&files);
            assert_eq!(config.enable_cdi.map(|(on, _)| on), enabled, "{files:?}");
            let dirs = dirs.map(|dirs| dirs.iter().map(|dir| (*dir).to_owned()).collect());
            assert_eq!(config.cdi_spec_dirs.map(|(dirs, _)| dirs), dirs, "{files:?}");
        }
    }

    #[test]
    fn what_lies_below_the_hosts_root_is_read_and_nothing_is_no_configuration() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(RuntimeConfig::read(root.path()), None);
        for (file, text) in [
            ("etc/containerd/config.toml", "enable_cdi = true\n"),
            ("etc/containerd/conf.d/20-b.toml", "enable_cdi = false\n"),
            ("etc/containerd/conf.d/10-a.toml", "enable_cdi = true\n"),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let read = RuntimeConfig::read(root.path()).unwrap();
        let last = PathBuf::from("/etc/containerd/conf.d/20-b.toml");
        assert_eq!(read.enable_cdi, Some((false, last)), "as the host has the path");
    }
}
