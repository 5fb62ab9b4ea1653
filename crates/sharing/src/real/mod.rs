//! Control daemons as they are: the driver root's own program, without shell or chroot.
//!
//! A driver root may be another operating system than the one this process runs on, so the
//! program gets links to the driver's libraries as its library path and no other library of
//! that root.

mod ask;
mod find;
mod process;
mod spawn;

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_driverroot::{DriverFiles, DriverFilesCache, DriverRoot};

use crate::daemons::{DaemonError, Daemons, Launch, Process};
use crate::places::Places;

/// The control daemon, and its own client.
const CONTROL: &str = "nvidia-cuda-mps-control";

/// The longest line that is passed on.
const LONGEST_WORDS: usize = 120;

/// This node's daemons.
#[derive(Debug)]
pub struct RealDaemons {
    root: DriverRoot,
    files: DriverFilesCache,
}

impl RealDaemons {
    /// Those of the driver in `root`.
    #[must_use]
    pub fn new(root: DriverRoot) -> Self {
        Self { root, files: DriverFilesCache::default() }
    }

    /// The control program and the driver's libraries as this process sees them, looked for
    /// each time: a driver that was replaced a moment ago is seen.
    fn driver(&self) -> Result<Driver, DaemonError> {
        let library = self.root.find_nvml().map_err(|error| driver_error(&error))?;
        let version = library.file_name().and_then(|name| name.to_str());
        let version = version.and_then(|name| name.split_once(".so.")).map_or("", |(_, v)| v);
        let files = self.files.get(&self.root, version).map_err(|error| driver_error(&error))?;
        let program = files
            .programs
            .iter()
            .map(|program| self.here(&program.host_path))
            .find(|path| path.file_name().is_some_and(|name| name == CONTROL))
            .ok_or_else(|| DaemonError::NoProgram { root: self.root.host.clone() })?;
        Ok(Driver { program, libraries: self.libraries(&files) })
    }

    /// Each name that a program may load a library by, with the file.
    fn libraries(&self, files: &DriverFiles) -> Vec<(OsString, PathBuf)> {
        let named = files.libraries.iter().map(|library| {
            let path = self.here(&library.file.host_path);
            let name = library.soname.as_ref().map(OsString::from);
            (name.or_else(|| path.file_name().map(OsString::from)).unwrap_or_default(), path)
        });
        named.collect()
    }

    fn here(&self, host_path: &str) -> PathBuf {
        let path = Path::new(host_path);
        path.strip_prefix(&self.root.host)
            .map_or_else(|_| path.to_owned(), |inside| self.root.here.join(inside))
    }
}

/// What is needed of the driver.
struct Driver {
    program: PathBuf,
    libraries: Vec<(OsString, PathBuf)>,
}

impl Daemons for RealDaemons {
    fn spawn(&self, launch: &Launch) -> Result<Box<dyn Process>, DaemonError> {
        let driver = self.driver()?;
        spawn::link_driver(&launch.places, &driver)?;
        Ok(Box::new(spawn::spawn(&driver.program, launch)?))
    }

    fn find(&self, places: &Places) -> Result<Vec<Box<dyn Process>>, DaemonError> {
        let found = find::using_pipe(&places.pipe).map_err(DaemonError::Processes)?;
        Ok(found.into_iter().map(|process| Box::new(process) as Box<dyn Process>).collect())
    }

    fn ask(
        &self,
        places: &Places,
        commands: &[String],
        limit: Duration,
    ) -> Result<String, DaemonError> {
        // Without the socket the program could only say that there is no daemon. A link is
        // none: root in a container of the claim could lead us to another claim's daemon.
        let socket = std::fs::symlink_metadata(places.socket());
        if !socket.is_ok_and(|data| data.file_type().is_socket()) {
            return Err(DaemonError::NoSocket);
        }
        // The program that the daemon was started from, also after a change of the driver.
        let program = spawn::linked_program(places)?;
        ask::ask(&program, places, commands, limit)
    }

    fn last_words(&self, places: &Places) -> Option<String> {
        let last = |name: &str| {
            let text = std::fs::read(places.log.join(name)).ok()?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
            // `[date Control pid] words`
            let words = line.split_once("] ").map_or(line, |(_, words)| words);
            Some(words.chars().take(LONGEST_WORDS).collect())
        };
        last(spawn::OUTPUT).or_else(|| last("control.log"))
    }
}

fn driver_error(error: &dyn std::error::Error) -> DaemonError {
    let source = error.source().map(|source| format!(": {source}"));
    DaemonError::Driver(format!("{error}{}", source.unwrap_or_default()))
}

/// The environment of the daemon and of its client.
fn environment(program: &Path, places: &Places) -> Vec<(&'static str, OsString)> {
    vec![
        ("CUDA_MPS_PIPE_DIRECTORY", places.pipe.clone().into_os_string()),
        ("CUDA_MPS_LOG_DIRECTORY", places.log.clone().into_os_string()),
        ("LD_LIBRARY_PATH", places.libraries.clone().into_os_string()),
        // Where the daemon finds nvidia-cuda-mps-server.
        ("PATH", program.parent().unwrap_or(Path::new("/usr/bin")).as_os_str().to_owned()),
    ]
}
