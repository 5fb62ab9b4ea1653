//! One initialised library: the node, and its files as they were last seen.
//!
//! Files are read again when their stamp changes. Without a control file a call costs one
//! look for it and no more.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_dra_sim_data::control::{Control, Fault};
use gpu_dra_sim_data::node::Node;
use gpu_dra_sim_data::state::HardwareState;
use gpu_dra_sim_data::state_dir::{Stamp, StateDir, StateError};

use crate::code::{Answer, Code};
use crate::locate::{self, Found};

/// Writes every call to `calls.log`, like the control file's `callLog`.
const CALL_LOG_ENV: &str = "GPU_DRA_SIM_CALL_LOG";

pub(crate) struct Session {
    pub(crate) node: Arc<Node>,
    /// None in a container that sees the library alone: nothing can be changed.
    dir: Option<StateDir>,
    log_always: bool,
    state: Mutex<Cached<HardwareState>>,
    control: Mutex<Cached<Control>>,
    used_up: Mutex<BTreeMap<Fault, u32>>,
}

struct Cached<T> {
    stamp: Option<Stamp>,
    value: Arc<T>,
}

struct Library {
    users: u32,
    session: Option<Arc<Session>>,
}

static LIBRARY: Mutex<Library> = Mutex::new(Library { users: 0, session: None });

/// Nothing that holds one of these locks can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The session that runs.
pub(crate) fn current() -> Answer<Arc<Session>> {
    lock(&LIBRARY).session.clone().ok_or(Code::UNINITIALIZED)
}

/// `nvmlInit`: the first user opens the node.
pub(crate) fn start(function: &str) -> Answer {
    let mut library = lock(&LIBRARY);
    if library.session.is_none() {
        let session = Session::open()?;
        let control = session.control()?;
        session.log(&control, function, None)?;
        if let Some(code) = control.init.filter(|code| *code != 0) {
            return Err(Code(code));
        }
        library.session = Some(Arc::new(session));
    }
    library.users += 1;
    Ok(())
}

/// `nvmlShutdown`: the last user closes it.
pub(crate) fn stop() -> Answer {
    let mut library = lock(&LIBRARY);
    library.users = library.users.checked_sub(1).ok_or(Code::UNINITIALIZED)?;
    if library.users == 0 {
        library.session = None;
    }
    Ok(())
}

impl Session {
    fn open() -> Answer<Self> {
        let (node, dir, control) = match locate::node()? {
            Found::Dir(dir) => (dir.node()?, Some(dir), Control::default()),
            Found::Alone(node) => {
                // As real NVML does in a container: only what its devices allow is there.
                let control = Control { hide_absent_nodes: true, ..Control::default() };
                (*node, None, control)
            }
        };
        let state = match &dir {
            Some(dir) => Cached { stamp: dir.state_stamp(), value: Arc::new(dir.state()?) },
            None => Cached { stamp: None, value: Arc::new(HardwareState::fresh(&node)) },
        };
        Ok(Self {
            node: Arc::new(node),
            dir,
            log_always: std::env::var_os(CALL_LOG_ENV).is_some(),
            state: Mutex::new(state),
            control: Mutex::new(Cached { stamp: None, value: Arc::new(control) }),
            used_up: Mutex::new(BTreeMap::new()),
        })
    }

    /// The hardware's state as of now.
    pub(crate) fn state(&self) -> Answer<Arc<HardwareState>> {
        let mut cached = lock(&self.state);
        if let Some(dir) = &self.dir {
            let stamp = dir.state_stamp();
            if stamp != cached.stamp {
                *cached = Cached { stamp, value: Arc::new(dir.state()?) };
            }
        }
        Ok(Arc::clone(&cached.value))
    }

    /// Changes the hardware's state for all processes.
    pub(crate) fn update<T>(
        &self,
        change: impl FnOnce(&Node, &mut HardwareState) -> Answer<T>,
    ) -> Answer<T> {
        let dir = self.dir.as_ref().ok_or(Code::NO_PERMISSION)?;
        dir.update(change)
    }

    /// What goes wrong as of now. A file that can't be understood leaves things as they were.
    pub(crate) fn control(&self) -> Answer<Arc<Control>> {
        let mut cached = lock(&self.control);
        let Some(dir) = &self.dir else { return Ok(Arc::clone(&cached.value)) };
        let stamp = dir.control_stamp();
        if stamp != cached.stamp {
            match dir.control() {
                Ok(control) => {
                    // A fault that was taken out of the file starts anew when it comes back.
                    lock(&self.used_up).retain(|fault, _| control.faults.contains(fault));
                    cached.value = Arc::new(control);
                }
                Err(error @ StateError::Format { .. }) => eprintln!("simulated NVML: {error}"),
                Err(error) => return Err(error.into()),
            }
            cached.stamp = stamp;
        }
        Ok(Arc::clone(&cached.value))
    }

    /// Writes a call to the log, if that's wanted.
    pub(crate) fn log(&self, control: &Control, function: &str, gpu: Option<usize>) -> Answer {
        match &self.dir {
            Some(dir) if self.log_always || control.call_log => Ok(dir.log_call(function, gpu)?),
            _ => Ok(()),
        }
    }

    /// The first fault that matches, counted against its `times`, and how often it did before.
    pub(crate) fn fault<'control>(
        &self,
        control: &'control Control,
        function: &str,
        gpu: Option<usize>,
    ) -> Option<(&'control Fault, u32)> {
        if control.faults.is_empty() {
            return None;
        }
        let mut used_up = lock(&self.used_up);
        control.faults.iter().find_map(|fault| {
            let here = match &fault.gpu {
                Some(selector) => gpu.is_some() && self.node.position(selector) == gpu,
                None => true,
            };
            if !here || !fault.is_for(function) {
                return None;
            }
            let used = used_up.entry(fault.clone()).or_default();
            let before = *used;
            if fault.times.is_some_and(|times| before >= times) {
                return None;
            }
            *used = before.saturating_add(1);
            Some((fault, before))
        })
    }

    /// Whether the node of a GPU can be opened by this process.
    pub(crate) fn has_device_node(&self, minor: u32) -> bool {
        let dev = self.dir.as_ref().map(|dir| dir.path().join(&self.node.dev_root));
        let dev = dev.filter(|dev| dev.is_dir()).unwrap_or_else(|| PathBuf::from("/dev"));
        dev.join(format!("nvidia{minor}")).exists()
    }
}
