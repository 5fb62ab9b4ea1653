//! The control daemon: its files, its socket, its end.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Places;
use crate::client::Connection;
use crate::commands::{self, Outcome};
use crate::faults::Faults;
use crate::log::Log;
use crate::state::Daemon;

const RUNNING: &str = "An instance of this daemon is already running";

/// How long `-d` waits for the daemon to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command longer than this is nonsense.
const LONGEST_LINE: u64 = 4096;

/// `-d`: starts the daemon as another process, and returns when it answers.
pub(crate) fn start_in_background(places: &Places, multi_user: bool) -> Result<(), String> {
    if Connection::open(&places.socket()).is_ok() {
        return Err(RUNNING.to_owned());
    }
    let mut child = std::env::current_exe()
        .and_then(|own| {
            let multi_user = multi_user.then_some("-M");
            Command::new(own)
                .arg("-f")
                .args(multi_user)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
        })
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    while Connection::open(&places.socket()).is_err() {
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            return Err(Faults::read().start_fails().unwrap_or("The daemon has ended").to_owned());
        }
        if Instant::now() > deadline {
            return Err("The daemon does not answer".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// `-f`: serves until told to quit.
pub(crate) fn run(places: &Places, multi_user: bool) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    for folder in [&places.pipe, &places.log] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let log = Log::control(places);
    let faults = Faults::read();
    if let Some(message) = faults.start_fails() {
        return Err(message.to_owned());
    }
    // Held while this process lives: the kernel gives it back whatever happens.
    let pid_file = places.pipe.join("nvidia-cuda-mps-control.pid");
    let mut pid = OpenOptions::new().create(true).truncate(false).write(true).open(&pid_file);
    let pid = pid.as_mut().map_err(|error| error.to_string())?;
    pid.try_lock().map_err(|_| RUNNING.to_owned())?;
    pid.set_len(0).map_err(words)?;
    pid.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(words)?;
    std::thread::sleep(faults.start_takes());

    let socket = places.socket();
    log.line(&format!("Starting control daemon using socket {}", socket.display()));
    if socket.exists() {
        fs::remove_file(&socket).map_err(words)?;
    }
    let listener = UnixListener::bind(&socket).map_err(words)?;
    // Clients of all users may come.
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).map_err(words)?;
    log.line(&format!(
        "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
        places.pipe.display()
    ));
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let devices = visible.split(',').filter(|device| !device.is_empty()).map(str::to_owned);
    let daemon = Daemon::new(devices.collect(), multi_user);
    if let Some(life) = faults.dies_after() {
        std::thread::spawn(move || {
            std::thread::sleep(life);
            std::process::abort();
        });
    }
    let log = Arc::new(log);
    for stream in listener.incoming() {
        log.line("Accepting connection...");
        let (daemon, log) = (Arc::clone(&daemon), Arc::clone(&log));
        let files = [socket.clone(), pid_file.clone()];
        let stream = stream.map_err(words)?;
        std::thread::spawn(move || match converse(&daemon, &log, stream) {
            Ok(false) => {}
            Ok(true) => {
                log.line("Exit");
                for file in files {
                    if let Err(error) = fs::remove_file(&file) {
                        log.line(&format!("{}: {error}", file.display()));
                    }
                }
                std::process::exit(0);
            }
            Err(error) => log.line(&format!("connection: {error}")),
        });
    }
    Ok(())
}

/// Serves one connection. True when the daemon was told to quit.
fn converse(daemon: &Arc<Daemon>, log: &Log, stream: UnixStream) -> io::Result<bool> {
    let mut lines = BufReader::new(stream);
    log.line("NEW UI");
    loop {
        let mut line = String::new();
        lines.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
        let command = line.trim();
        if line.is_empty() {
            log.line("UI closed");
            return Ok(false);
        }
        if let Some(client) = command.strip_prefix("#client ") {
            return serve_client(daemon, client, lines).map(|()| false);
        }
        log.line(&format!("Cmd:{command}"));
        let name = command.split_whitespace().next().unwrap_or_default();
        let faults = Faults::read();
        if faults.hangs(name) {
            // Until the asker gives up.
            lines.read_to_end(&mut Vec::new())?;
            return Ok(false);
        }
        let outcome = match faults.refuses(name) {
            Some(refusal) => Outcome::Answer(format!("{refusal}\n")),
            None => commands::run(daemon, command),
        };
        match outcome {
            Outcome::Answer(text) => {
                text.lines().for_each(|line| log.line(line));
                lines.get_mut().write_all(format!("{text}\0").as_bytes())?;
            }
            Outcome::Quit => {
                for server in &daemon.lock().servers {
                    if let Err(reason) = server.kill() {
                        log.line(&reason);
                    }
                }
                lines.get_mut().write_all(b"\0")?;
                return Ok(true);
            }
        }
    }
}

/// A stand-in for a CUDA process says `#client UID PID` and stays connected as long as it
/// has its context. It is told the server's process id, or that it has to wait.
fn serve_client(
    daemon: &Arc<Daemon>,
    client: &str,
    mut stream: BufReader<UnixStream>,
) -> io::Result<()> {
    let mut words = client.split_whitespace().map(str::parse::<u32>);
    let (Some(Ok(uid)), Some(Ok(pid))) = (words.next(), words.next()) else {
        return stream.get_mut().write_all(b"want #client UID PID\n\0");
    };
    let answer = match daemon.server_for(uid) {
        Ok(Some(server)) => {
            daemon.attach(pid, server, stream.get_ref().try_clone()?);
            format!("{server}\n\0")
        }
        Ok(None) => "pending\n\0".to_owned(),
        Err(refusal) => format!("{refusal}\n\0"),
    };
    stream.get_mut().write_all(answer.as_bytes())?;
    let gone = stream.read_to_end(&mut Vec::new());
    daemon.detach(pid);
    gone.map(drop)
}
