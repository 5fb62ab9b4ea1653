//! The action `create-links`.

use std::path::{Path, PathBuf};

use crate::Warning;
use crate::args::Link;
use crate::error::HookError;
use crate::inroot::InRoot;
use crate::place;

pub(crate) fn create(root: &InRoot, links: &[Link]) -> Result<Vec<Warning>, HookError> {
    let mut warnings = Vec::new();
    for link in links {
        match place::link(root, Path::new(&link.path), &link.target) {
            Ok(()) => {}
            Err(error) if place::is_the_pods_choice(&error) => {
                warnings.push(format!("link {} left out: {error}", link.path));
            }
            Err(source) => {
                let path = PathBuf::from(&link.path);
                return Err(HookError::Io { what: "make link", path, source });
            }
        }
    }
    Ok(warnings)
}
