//! `control.log` and `server.log`: lines as the real programs write them,
//! `[2024-04-23 06:04:59.389 Control    72] NEW UI`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Places;

pub(crate) struct Log {
    file: PathBuf,
    who: &'static str,
}

impl Log {
    pub(crate) fn control(places: &Places) -> Self {
        Self { file: places.log.join("control.log"), who: "Control" }
    }

    pub(crate) fn server(places: &Places) -> Self {
        Self { file: places.log.join("server.log"), who: "Server" }
    }

    /// A log that can't be written stops nobody, as with the real program.
    pub(crate) fn line(&self, text: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("[{} {} {:>5}] {text}\n", date(now), self.who, std::process::id());
        let log = OpenOptions::new().create(true).append(true).open(&self.file);
        if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
            eprintln!("{}: {error}", self.file.display());
        }
    }
}

/// `2024-04-23 06:04:59.389` in UTC.
fn date(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (mut year, mut day) = (1970, seconds / 86_400);
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!(
        "{year:04}-{month:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        day + 1,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        since_epoch.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_the_real_program_does() {
        let at = |seconds| date(Duration::from_secs(seconds) + Duration::from_millis(389));
        assert_eq!(at(1_713_852_299), "2024-04-23 06:04:59.389");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.389");
        assert_eq!(at(1_735_603_200), "2024-12-31 00:00:00.389");
    }
}
