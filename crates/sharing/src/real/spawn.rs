//! Starts a control daemon in the foreground, with the claim's tmpfs as its `/dev/shm`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpu_dra_host::FileError;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::process::RealProcess;
use super::{CONTROL, Driver, environment};
use crate::daemons::{DaemonError, Launch};
use crate::mounts::Shm;
use crate::places::Places;

/// What the daemon writes to standard output and standard error, in its log folder.
pub(super) const OUTPUT: &str = "output.log";

/// Makes a folder of links to the driver's libraries, each by the name it is loaded by, and
/// one to the control program.
pub(super) fn link_driver(places: &Places, driver: &Driver) -> Result<(), DaemonError> {
    let dir = &places.libraries;
    let failed = |source| FileError::new("link the driver in", dir, source);
    // Made anew: the driver may be another one than at the last start.
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
        _ => {}
    }
    fs::create_dir(dir).map_err(failed)?;
    symlink(&driver.program, dir.join(CONTROL)).map_err(failed)?;
    for (name, library) in &driver.libraries {
        match symlink(library, dir.join(name)) {
            // Two libraries by one name: the first is what the loader would have found.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(failed)?,
        }
    }
    Ok(())
}

/// The control program that the daemon in `places` was started from.
pub(super) fn linked_program(places: &Places) -> Result<PathBuf, DaemonError> {
    let link = places.libraries.join(CONTROL);
    fs::read_link(&link).map_err(|source| FileError::new("read", &link, source).into())
}

pub(super) fn spawn(program: &Path, launch: &Launch) -> Result<RealProcess, DaemonError> {
    let start = |source| DaemonError::Start { program: program.to_owned(), source };
    let output = launch.places.log.join(OUTPUT);
    let output =
        File::create(&output).map_err(|source| FileError::new("write", &output, source))?;
    let errors = output.try_clone().map_err(start)?;
    let mut command = Command::new(program);
    command
        .arg("-f")
        .args(launch.spec.multi_user().then_some("-M"))
        .env_clear()
        .envs(environment(program, &launch.places))
        .env("CUDA_VISIBLE_DEVICES", launch.visible_devices())
        .current_dir(&launch.places.base)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // A Ctrl-C for the MPS host is none for its daemons.
        .process_group(0);
    let child = match launch.shm {
        Shm::Folder => command.spawn().map_err(start)?,
        // The kernel keeps mount namespaces by thread, and a child gets that of the thread
        // which made it: so this thread is for this child alone.
        Shm::Tmpfs => std::thread::scope(|scope| {
            let own = scope.spawn(|| {
                own_shm(&launch.places.shm, &launch.places.base)?;
                command.spawn()
            });
            own.join().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))
        })
        .map_err(start)?,
    };
    RealProcess::open(child.id())
        .map_err(start)?
        .ok_or_else(|| start(io::ErrorKind::NotFound.into()))
}

/// Gives this thread a mount namespace in which `/dev/shm` is `shm`.
fn own_shm(shm: &Path, base: &Path) -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        // Where mounting is allowed and this isn't, the daemon shares our /dev/shm.
        Err(Errno::EPERM) => return Ok(()),
        other => other?,
    }
    let none = None::<&Path>;
    // What is mounted on the host later is seen here, and nothing of here there.
    mount(none, Path::new("/"), none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
    mount(Some(shm), Path::new("/dev/shm"), none, MsFlags::MS_BIND, none)?;
    // The memory of another claim must not stay in use because this daemon holds its mount.
    for mounted in mounts_beside(base)? {
        match umount2(&mounted, MntFlags::MNT_DETACH) {
            // Unmounted by its own daemon's end meanwhile.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The mount points in other folders beside this one, as this thread sees them.
fn mounts_beside(base: &Path) -> io::Result<Vec<PathBuf>> {
    let run = base.parent().unwrap_or(base);
    let table = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let beside = |at: &PathBuf| at.starts_with(run) && at != run && !at.starts_with(base);
    Ok(points.filter(beside).collect())
}
