//! A node behind the end of a library file.
//!
//! A container gets the library but not `config/`. The loader doesn't look behind the last
//! section, so the staged copy carries the hardware there and knows it anywhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::node::Node;
use crate::state_dir::{StateError, io_error};

/// Ends the file, after the length of what is before it (8 bytes, little endian).
const MAGIC: &[u8; 16] = b"gpu-dra-sim-node";
const TAIL: i64 = 24;

/// Puts a node behind the end of a file.
pub(crate) fn append(file: &Path, node: &Node) -> Result<(), StateError> {
    let text = serde_json::to_vec(node)
        .map_err(|source| StateError::Format { file: file.to_owned(), source })?;
    let length = (text.len() as u64).to_le_bytes();
    OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut open| open.write_all(&[&text, &length[..], MAGIC].concat()))
        .map_err(|source| io_error("write", file, source))
}

/// The node behind the end of a file, if there is one.
///
/// # Errors
/// Where the file can't be read or the node not understood.
pub fn read(file: &Path) -> Result<Option<Node>, StateError> {
    let text = bytes(file).map_err(|source| io_error("read", file, source))?;
    let Some(text) = text else { return Ok(None) };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| StateError::Format { file: file.to_owned(), source })
}

fn bytes(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let size = fs::metadata(file)?.len();
    if size < TAIL.unsigned_abs() {
        return Ok(None);
    }
    let mut open = File::open(file)?;
    open.seek(SeekFrom::End(-TAIL))?;
    let (mut length, mut magic) = ([0; 8], [0; 16]);
    open.read_exact(&mut length)?;
    open.read_exact(&mut magic)?;
    let length = u64::from_le_bytes(length);
    if magic != *MAGIC || length > size - TAIL.unsigned_abs() {
        return Ok(None);
    }
    open.seek(SeekFrom::Start(size - TAIL.unsigned_abs() - length))?;
    let mut text = Vec::new();
    open.take(length).read_to_end(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NodeSpec;

    #[test]
    fn what_is_appended_is_read_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "a library").unwrap();
        assert_eq!(read(file.path()).unwrap(), None);
        let node = Node::build(&NodeSpec::parse("2xl4").unwrap());
        append(file.path(), &node).unwrap();
        assert_eq!(read(file.path()).unwrap(), Some(node));
        assert!(fs::read(file.path()).unwrap().starts_with(b"a library"));
    }
}
