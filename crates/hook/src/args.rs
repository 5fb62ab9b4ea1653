//! The hook's command line, read and written in one place.
//!
//! `gpu-dra-hook create-links --link TARGET::PATH ...`
//! `gpu-dra-hook update-ldcache --folder FOLDER ...`
//! `gpu-dra-hook disable-device-node-modification`

use std::fmt;

/// The program's name, the first of its arguments.
pub const PROGRAM: &str = "gpu-dra-hook";

const CREATE_LINKS: &str = "create-links";
const UPDATE_LDCACHE: &str = "update-ldcache";
const DISABLE_DEVICE_NODES: &str = "disable-device-node-modification";

/// A symbolic link to make in the container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// What it points to; relative to its folder, or absolute in the container.
    pub target: String,
    /// Where it lies: an absolute path in the container.
    pub path: String,
}

/// One thing for the hook to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make these links, in this order.
    CreateLinks(Vec<Link>),
    /// Make the loader find the libraries in these folders (absolute, in the container).
    UpdateLdcache(Vec<String>),
    /// Keep the driver's libraries from making the nodes of all GPUs in the container.
    DisableDeviceNodeModification,
}

/// A command line that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgsError {
    /// No such action, or none at all.
    UnknownAction(String),
    /// An option that the action doesn't have.
    UnknownOption(String),
    /// The last option lacks its value.
    MissingValue(String),
    /// A value that is no `TARGET::PATH`, or a path that isn't absolute.
    BadValue(String),
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAction(action) => {
                let known = [CREATE_LINKS, UPDATE_LDCACHE, DISABLE_DEVICE_NODES].join(", ");
                write!(f, "unknown action {action:?}: want one of {known}")
            }
            Self::UnknownOption(option) => write!(f, "unknown option {option:?}"),
            Self::MissingValue(option) => write!(f, "option {option} has no value"),
            Self::BadValue(value) => write!(f, "value {value:?} is malformed"),
        }
    }
}

impl std::error::Error for ArgsError {}

impl Action {
    /// The arguments that make the hook do this, the program's name first.
    #[must_use]
    pub fn to_args(&self) -> Vec<String> {
        let mut args = vec![PROGRAM.to_owned()];
        match self {
            Self::CreateLinks(links) => {
                args.push(CREATE_LINKS.to_owned());
                for link in links {
                    args.push("--link".to_owned());
                    args.push(format!("{}::{}", link.target, link.path));
                }
            }
            Self::UpdateLdcache(folders) => {
                args.push(UPDATE_LDCACHE.to_owned());
                for folder in folders {
                    args.push("--folder".to_owned());
                    args.push(folder.clone());
                }
            }
            Self::DisableDeviceNodeModification => args.push(DISABLE_DEVICE_NODES.to_owned()),
        }
        args
    }

    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, ArgsError> {
        let mut args = args.into_iter();
        let action = args.next().unwrap_or_default();
        match action.as_str() {
            CREATE_LINKS => {
                values(args, "--link")?.map(link).collect::<Result<_, _>>().map(Self::CreateLinks)
            }
            UPDATE_LDCACHE => values(args, "--folder")?
                .map(absolute)
                .collect::<Result<_, _>>()
                .map(Self::UpdateLdcache),
            DISABLE_DEVICE_NODES => match args.next() {
                None => Ok(Self::DisableDeviceNodeModification),
                Some(option) => Err(ArgsError::UnknownOption(option)),
            },
            _ => Err(ArgsError::UnknownAction(action)),
        }
    }
}

/// The values of a line that has nothing but `option value` pairs.
fn values(
    mut args: impl Iterator<Item = String>,
    option: &str,
) -> Result<std::vec::IntoIter<String>, ArgsError> {
    let mut values = Vec::new();
    while let Some(arg) = args.next() {
        if arg != option {
            return Err(ArgsError::UnknownOption(arg));
        }
        values.push(args.next().ok_or(ArgsError::MissingValue(arg))?);
    }
    Ok(values.into_iter())
}

fn link(value: String) -> Result<Link, ArgsError> {
    match value.split_once("::") {
        Some((target, path)) if !target.is_empty() => {
            Ok(Link { target: target.to_owned(), path: absolute(path.to_owned())? })
        }
        _ => Err(ArgsError::BadValue(value)),
    }
}

fn absolute(path: String) -> Result<String, ArgsError> {
    if path.starts_with('/') && !path.contains('\n') {
        Ok(path)
    } else {
        Err(ArgsError::BadValue(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Action, ArgsError> {
        Action::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_written_is_read() {
        let link = |target: &str, path: &str| Link { target: target.into(), path: path.into() };
        for action in [
            Action::CreateLinks(vec![
                link("libcuda.so.1", "/usr/lib64/libcuda.so"),
                link("../card1", "/dev/dri/by-path/pci-0000:3b:00.0-card"),
            ]),
            Action::UpdateLdcache(vec!["/usr/lib64".into(), "/usr/lib/with space".into()]),
            Action::CreateLinks(Vec::new()),
            Action::DisableDeviceNodeModification,
        ] {
            assert_eq!(Action::parse(action.to_args().into_iter().skip(1)).as_ref(), Ok(&action));
        }
    }

    #[test]
    fn each_malformed_line_has_its_error() {
        assert!(matches!(parse(""), Err(ArgsError::UnknownAction(_))));
        assert!(matches!(parse("ldcache"), Err(ArgsError::UnknownAction(_))));
        assert!(matches!(parse("create-links --folder /x"), Err(ArgsError::UnknownOption(_))));
        let extra = parse("disable-device-node-modification --folder");
        assert!(matches!(extra, Err(ArgsError::UnknownOption(_))));
        assert!(matches!(parse("create-links --link"), Err(ArgsError::MissingValue(_))));
        assert!(matches!(parse("create-links --link a"), Err(ArgsError::BadValue(_))));
        assert!(matches!(parse("create-links --link ::/a"), Err(ArgsError::BadValue(_))));
        assert!(matches!(parse("create-links --link a::b"), Err(ArgsError::BadValue(_))));
        assert!(matches!(parse("update-ldcache --folder lib"), Err(ArgsError::BadValue(_))));
    }
}
