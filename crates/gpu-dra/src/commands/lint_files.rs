//! Files, folders and stdin as documents to be linted.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpu_dra_lint::Document;

/// The documents of all paths, those of folders in the order of their names.
pub(super) fn documents(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("can't read stdin")?;
            documents.extend(Document::parse("stdin", &text)?);
        } else if path.is_dir() {
            let mut files = Vec::new();
            find(path, &mut files)?;
            if files.is_empty() {
                bail!("no .yaml, .yml or .json file in {}", path.display());
            }
            for file in files {
                documents.extend(parse(&file)?);
            }
        } else {
            documents.extend(parse(path)?);
        }
    }
    Ok(documents)
}

fn parse(path: &Path) -> anyhow::Result<Vec<Document>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    Ok(Document::parse(&path.display().to_string(), &text)?)
}

/// The manifests under a folder. Links to folders are not followed: they may lead in circles.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("can't read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if !path.is_symlink() {
                find(&path, files)?;
            }
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
        {
            files.push(path);
        }
    }
    Ok(())
}
