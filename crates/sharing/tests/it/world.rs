//! A machine in memory: files that lose unsynced data, folders and mounts on a tmpfs,
//! daemons that outlive the process which started them, and a [`Lifecycle`] that is thrown
//! away and made again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Boundary, FileError, Files};
use gpu_dra_sharing::{
    DaemonError, DaemonId, DaemonSpec, Daemons, Folders, Journal, Launch, Lifecycle,
    LifecycleError, Mounts, Patience, Places, Process, Record, RunDir, Shm, Up, Waited, Wake, Wish,
};

/// One process of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) pipe: PathBuf,
    pub(crate) devices: String,
    /// None for a server.
    pub(crate) limits: Option<Vec<String>>,
}

#[derive(Default)]
struct State {
    dirs: BTreeSet<PathBuf>,
    notes: BTreeMap<PathBuf, String>,
    mounts: BTreeSet<PathBuf>,
    processes: BTreeMap<u32, Running>,
    next_pid: u32,
}

/// The machine, whoever lives on it.
pub(crate) struct Machine {
    pub(crate) files: Arc<SimFiles>,
    state: Arc<Mutex<State>>,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self { files: Arc::default(), state: Arc::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One effect: it can fail or die before it is done and after.
    fn effect<T>(
        &self,
        what: &'static str,
        act: impl FnOnce(&mut State) -> T,
    ) -> Result<T, FileError> {
        self.files.effect(what)?;
        let done = act(&mut self.state());
        self.files.effect("between two effects")?;
        Ok(done)
    }
}

impl Folders for Machine {
    fn exists(&self, dir: &Path) -> Result<bool, FileError> {
        Ok(self.state().dirs.contains(dir))
    }

    fn create(&self, dir: &Path, _mode: u32) -> Result<(), FileError> {
        self.effect("create folder", |state| {
            state.dirs.insert(dir.to_owned());
        })
    }

    fn remove_tree(&self, dir: &Path) -> Result<(), FileError> {
        self.effect("remove half of a folder", |state| {
            let half = state.dirs.iter().rev().find(|path| path.starts_with(dir)).cloned();
            half.map(|half| state.dirs.remove(&half))
        })?;
        self.effect("remove folder", |state| {
            assert!(!state.mounts.iter().any(|m| m.starts_with(dir)), "removed under a mount");
            state.dirs.retain(|path| !path.starts_with(dir));
            state.notes.retain(|path, _| !path.starts_with(dir));
        })
    }

    fn note(&self, file: &Path, text: &str) -> Result<(), FileError> {
        assert!(self.state().dirs.contains(file.parent().unwrap()), "no folder for a note");
        self.effect("note", |state| {
            state.notes.insert(file.to_owned(), text.to_owned());
        })
    }

    fn noted(&self, file: &Path) -> Result<Option<String>, FileError> {
        Ok(self.state().notes.get(file).cloned())
    }

    fn names(&self, dir: &Path) -> Result<Vec<String>, FileError> {
        let state = self.state();
        let inside = state.dirs.iter().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }
}

impl Mounts for Machine {
    fn tmpfs(&self, dir: &Path, _options: &str) -> Result<Shm, FileError> {
        assert!(self.state().dirs.contains(dir) || self.files.is_dead(), "no folder to mount on");
        self.effect("mount", |state| {
            state.mounts.insert(dir.to_owned());
        })?;
        Ok(Shm::Tmpfs)
    }

    fn unmount(&self, dir: &Path) -> Result<(), FileError> {
        self.effect("unmount", |state| {
            state.mounts.remove(dir);
        })
    }
}

impl Daemons for Machine {
    fn spawn(&self, launch: &Launch) -> Result<Box<dyn Process>, DaemonError> {
        let pid = self.effect("spawn", |state| {
            let rival = state.processes.values().any(|p| p.pipe == launch.places.pipe);
            assert!(!rival, "two daemons on one pipe directory");
            let pipe = launch.places.pipe.clone();
            let devices = launch.visible_devices();
            state.add(Running { pipe, devices, limits: Some(Vec::new()) })
        })?;
        Ok(self.process(pid))
    }

    fn find(&self, places: &Places) -> Result<Vec<Box<dyn Process>>, DaemonError> {
        let state = self.state();
        let of = state.processes.iter().filter(|(_, process)| process.pipe == places.pipe);
        Ok(of.map(|(pid, _)| self.process(*pid)).collect())
    }

    fn ask(
        &self,
        places: &Places,
        commands: &[String],
        limit: Duration,
    ) -> Result<String, DaemonError> {
        let silent = || DaemonError::Silent { limit, said: "nobody is there".into() };
        let answer = self.effect("ask", |state| {
            let mut of = state.processes.iter_mut().filter(|(_, p)| p.pipe == places.pipe);
            let (pid, daemon) = of.find(|(_, process)| process.limits.is_some())?;
            if commands == ["quit"] {
                let pid = *pid;
                state.processes.remove(&pid);
                return Some(String::new());
            }
            let set = commands.iter().filter(|command| command.starts_with("set"));
            daemon.limits = Some(set.cloned().collect());
            let percentage = commands[0].strip_prefix("set_default_active_thread_percentage ");
            Some(format!("{}\n", percentage.unwrap_or("100.0")))
        })?;
        answer.ok_or_else(silent)
    }

    fn last_words(&self, _places: &Places) -> Option<String> {
        None
    }
}

impl Machine {
    fn process(&self, pid: u32) -> Box<dyn Process> {
        Box::new(SimProcess { pid, files: Arc::clone(&self.files), state: Arc::clone(&self.state) })
    }
}

impl State {
    fn add(&mut self, process: Running) -> u32 {
        self.next_pid += 1;
        self.processes.insert(self.next_pid, process);
        self.next_pid
    }
}

struct SimProcess {
    pid: u32,
    files: Arc<SimFiles>,
    state: Arc<Mutex<State>>,
}

impl Process for SimProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_control_of(&self, launch: &Launch) -> bool {
        let state = self.state.lock().unwrap();
        let own = state.processes.get(&self.pid);
        own.is_some_and(|own| own.limits.is_some() && own.devices == launch.visible_devices())
    }

    fn kill(&self) -> Result<(), DaemonError> {
        self.files.effect("kill")?;
        self.state.lock().unwrap().processes.remove(&self.pid);
        Ok(())
    }

    fn wait(&self, _: Option<&Wake>, _: Option<Duration>) -> Result<Waited, DaemonError> {
        let gone = !self.state.lock().unwrap().processes.contains_key(&self.pid);
        Ok(if gone { Waited::Ended("has ended".into()) } else { Waited::TimedOut })
    }
}

/// The machine and the process that tends it.
pub(crate) struct World {
    pub(crate) machine: Arc<Machine>,
    pub(crate) lifecycle: Lifecycle,
}

/// What is to be seen from outside: journal, folders, mounts, processes without their ids.
pub(crate) type Outside =
    (BTreeMap<PathBuf, Vec<u8>>, BTreeSet<PathBuf>, BTreeSet<PathBuf>, Vec<Running>);

pub(crate) fn id(n: u32) -> DaemonId {
    DaemonId::new(format!("claim-{n}")).unwrap()
}

pub(crate) fn spec(gpu: u32, percentage: u8) -> DaemonSpec {
    serde_json::from_value(serde_json::json!({
        "devices": [format!("GPU-11111111-0000-0000-0000-{gpu:012x}")],
        "activeThreadPercentage": percentage,
    }))
    .unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        let machine = Machine::new();
        let lifecycle = lifecycle(&machine);
        Self { machine, lifecycle }
    }

    /// What the host does to ensure a daemon: with the record that it has, or a new one.
    pub(crate) fn ensure(&self, id: &DaemonId, spec: &DaemonSpec) -> Result<Up, LifecycleError> {
        let known = self.lifecycle.journal.get(id)?;
        let new = Record { id: id.clone(), spec: spec.clone(), wish: Wish::Run };
        let record = known.filter(|known| *known == new).unwrap_or(new);
        self.lifecycle.bring_up(&record, &|| false)
    }

    pub(crate) fn stop(&self, id: &DaemonId) -> Result<(), LifecycleError> {
        self.lifecycle.tear_down(id)
    }

    /// A client comes, and the daemon starts a server for it.
    pub(crate) fn serve_someone(&self, id: &DaemonId) {
        let pipe = self.lifecycle.run.places(id).pipe;
        let mut state = self.machine.state();
        if state.processes.values().any(|process| process.pipe == pipe) {
            state.add(Running { pipe, devices: String::new(), limits: None });
        }
    }

    /// The control daemon is killed; its server lives on.
    pub(crate) fn kill_daemon(&self, id: &DaemonId) {
        let pipe = self.lifecycle.run.places(id).pipe;
        self.machine.state().processes.retain(|_, p| p.pipe != pipe || p.limits.is_none());
    }

    /// The host's process starts again, and does what its journal says. True if no process
    /// had to be started.
    pub(crate) fn restart(&mut self) -> bool {
        self.machine.files.restart();
        self.lifecycle = lifecycle(&self.machine);
        let recovered = self.lifecycle.recover().unwrap();
        assert!(recovered.unasked.is_empty(), "folders without a record: {:?}", recovered.unasked);
        let mut adopted = true;
        for record in recovered.records {
            match record.wish {
                Wish::Run => {
                    let up = self.lifecycle.bring_up(&record, &|| false).unwrap();
                    adopted &= up.adopted;
                }
                Wish::Stop => self.lifecycle.tear_down(&record.id).unwrap(),
            }
        }
        adopted
    }

    /// The machine boots: processes, mounts and the run folder are gone.
    pub(crate) fn reboot(&mut self) {
        let next_pid = self.machine.state().next_pid;
        *self.machine.state() = State { next_pid, ..State::default() };
        self.restart();
    }

    pub(crate) fn outside(&self) -> Outside {
        let state = self.machine.state();
        let processes = state.processes.values().cloned().collect();
        (self.machine.files.contents(), state.dirs.clone(), state.mounts.clone(), processes)
    }

    pub(crate) fn starts(&self, id: &DaemonId) -> u32 {
        self.lifecycle.starts(id).unwrap()
    }

    /// What must hold whenever nothing is under way: whatever there is has a record.
    pub(crate) fn check_invariants(&self) {
        let records = self.lifecycle.journal.all().unwrap();
        let bases: Vec<_> =
            records.iter().map(|record| self.lifecycle.run.places(&record.id).base).collect();
        let owned = |path: &Path| bases.iter().any(|base| path.starts_with(base));
        let (_, dirs, mounts, processes) = self.outside();
        for path in dirs.iter().chain(&mounts).chain(processes.iter().map(|p| &p.pipe)) {
            assert!(owned(path), "invariant everything has a record: {}", path.display());
        }
    }
}

fn lifecycle(machine: &Arc<Machine>) -> Lifecycle {
    let files: Arc<dyn Files> = Arc::<SimFiles>::clone(&machine.files);
    let (folders, mounts, daemons) =
        (Arc::clone(machine), Arc::clone(machine), Arc::clone(machine));
    let patience = Patience { start: Duration::ZERO, ..Patience::default() };
    Lifecycle {
        run: RunDir::new("/run/mps").unwrap(),
        journal: Journal::open(Path::new("/journal"), files).unwrap(),
        folders,
        mounts,
        daemons,
        patience,
        boundary: Boundary::default(),
    }
}
