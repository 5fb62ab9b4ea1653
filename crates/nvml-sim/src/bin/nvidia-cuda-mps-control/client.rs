//! Without `-d` or `-f` the program is the daemon's user interface: it sends what stands on
//! standard input and prints the answers.
//!
//! On the socket a command is a line, and an answer ends with a zero byte.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::Places;

/// What the real program says, and ends with 1.
const NO_DAEMON: &str = "Cannot find MPS control daemon process";

pub(crate) fn run(places: &Places) -> Result<(), String> {
    let mut connection = Connection::open(&places.socket()).map_err(|_| NO_DAEMON.to_owned())?;
    for line in io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line.trim().is_empty() {
            continue;
        }
        print!("{}", connection.ask(&line).map_err(|_| NO_DAEMON.to_owned())?);
        io::stdout().flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(crate) struct Connection(BufReader<UnixStream>);

impl Connection {
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        UnixStream::connect(socket).map(|stream| Self(BufReader::new(stream)))
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.0.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut answer = Vec::new();
        self.0.read_until(0, &mut answer)?;
        match answer.pop() {
            Some(0) => Ok(String::from_utf8_lossy(&answer).into_owned()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
