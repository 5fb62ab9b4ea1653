//! What goes wrong, read from `mps-faults` each time it matters. One fault a line:
//!
//! ```text
//! start-fails MESSAGE        the daemon says so and ends with 1
//! start-takes MS             before it answers anyone
//! dies-after MS              as if killed, so long after its start
//! refuses COMMAND MESSAGE    the answer to that command; nothing is done
//! hangs COMMAND              that command is never answered
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_sim_data::{STATE_ENV, StateDir};

#[derive(Debug, Default)]
pub(crate) struct Faults(String);

impl Faults {
    pub(crate) fn read() -> Self {
        let text = file().and_then(|file| std::fs::read_to_string(file).ok());
        Self(text.unwrap_or_default())
    }

    pub(crate) fn start_fails(&self) -> Option<&str> {
        self.after("start-fails")
    }

    pub(crate) fn start_takes(&self) -> Duration {
        self.milliseconds("start-takes").unwrap_or_default()
    }

    pub(crate) fn dies_after(&self) -> Option<Duration> {
        self.milliseconds("dies-after")
    }

    pub(crate) fn refuses(&self, command: &str) -> Option<&str> {
        let mut of = self.all("refuses").filter_map(|rest| rest.split_once(' '));
        of.find(|(name, _)| *name == command).map(|(_, message)| message.trim())
    }

    pub(crate) fn hangs(&self, command: &str) -> bool {
        self.all("hangs").any(|name| name == command)
    }

    fn milliseconds(&self, fault: &str) -> Option<Duration> {
        self.after(fault)?.parse().ok().map(Duration::from_millis)
    }

    fn after<'a>(&'a self, fault: &'a str) -> Option<&'a str> {
        self.all(fault).next()
    }

    fn all<'a>(&'a self, fault: &'a str) -> impl Iterator<Item = &'a str> {
        let words = self.0.lines().filter_map(|line| line.trim().split_once(' '));
        words.filter(move |(name, _)| *name == fault).map(|(_, rest)| rest.trim())
    }
}

fn file() -> Option<PathBuf> {
    let state = match std::env::var_os(STATE_ENV) {
        Some(path) => StateDir::open(Path::new(&path)),
        None => StateDir::near(&std::env::current_exe().ok()?),
    };
    Some(state?.path().join("mps-faults"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_one_fault() {
        let faults = Faults(
            "start-takes 20\nrefuses quit not now\nrefuses ps no\n\nhangs get_server_list\n".into(),
        );
        assert_eq!(faults.start_takes(), Duration::from_millis(20));
        assert_eq!(faults.refuses("quit"), Some("not now"));
        assert_eq!(faults.refuses("ps"), Some("no"));
        assert_eq!(faults.refuses("get_server_list"), None);
        assert!(faults.hangs("get_server_list") && !faults.hangs("ps"));
        assert_eq!((faults.start_fails(), faults.dies_after()), (None, None));
    }
}
