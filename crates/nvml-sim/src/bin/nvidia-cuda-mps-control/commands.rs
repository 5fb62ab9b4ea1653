//! The daemon's command language. Each command gives the text of its answer; a refused one
//! gives a sentence, and nothing is changed.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::limits::{Limits, Memory, percentage};
use crate::state::{Daemon, Inner, Server};

/// What a command leads to.
pub(crate) enum Outcome {
    Answer(String),
    Quit,
}

pub(crate) fn run(daemon: &Arc<Daemon>, line: &str) -> Outcome {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((name, args)) = words.split_first() else { return Outcome::Answer(String::new()) };
    if *name == "quit" {
        return Outcome::Quit;
    }
    let answer =
        if *name == "start_server" { start(daemon, args) } else { other(daemon, name, args) };
    Outcome::Answer(answer.unwrap_or_else(|refusal| format!("{refusal}\n")))
}

fn start(daemon: &Arc<Daemon>, args: &[&str]) -> Result<String, String> {
    let uid = match args {
        ["-uid", uid, ..] => uid.parse::<u32>().map_err(|_| format!("Invalid user id {uid}"))?,
        _ => return Err("Usage: start_server -uid <user id>".to_owned()),
    };
    match daemon.server_for(uid)? {
        Some(_) => Ok(String::new()),
        None => Err("A server of another user is active".to_owned()),
    }
}

fn other(daemon: &Daemon, name: &str, args: &[&str]) -> Result<String, String> {
    let mut inner = daemon.lock();
    match (name, args) {
        ("get_server_list", []) => Ok(lines(inner.servers.iter().map(|server| server.pid))),
        ("get_server_status", [pid]) => server(&mut inner, pid).map(|_| "ACTIVE\n".to_owned()),
        ("shutdown_server", [pid, ..]) => server(&mut inner, pid)?.kill().map(|()| String::new()),
        ("get_client_list", [pid]) => {
            let pid = server(&mut inner, pid)?.pid;
            let of = inner.clients.iter().filter(|client| client.server == pid);
            Ok(lines(of.map(|client| client.pid)))
        }
        ("get_device_client_list", [] | [_]) => {
            let of: Vec<u32> = inner
                .clients
                .iter()
                .filter(|client| args.first().is_none_or(|pid| *pid == client.server.to_string()))
                .map(|client| client.pid)
                .collect();
            let mut text = String::new();
            for device in &daemon.devices {
                let pids: String = of.iter().map(|pid| format!(" {pid}")).collect();
                writeln!(text, "{device}:{pids}").map_err(|error| error.to_string())?;
            }
            Ok(text)
        }
        ("terminate_client", [of, pid]) => {
            let of = server(&mut inner, of)?.pid;
            let mut clients = inner.clients.iter();
            let client = clients.find(|c| c.server == of && c.pid.to_string() == *pid);
            client.ok_or_else(|| format!("Client {pid} not found"))?.close();
            Ok(String::new())
        }
        ("ps", []) => {
            let row = |(pid, server): (u32, u32)| format!("{pid:>9} {server:>9}\n");
            let rows = inner.clients.iter().map(|client| row((client.pid, client.server)));
            Ok(format!("{:>9} {:>9}\n{}", "PID", "SERVER", rows.collect::<String>()))
        }
        _ => limits(daemon, &mut inner, name, args),
    }
}

/// The commands that show or change numbers: those of the daemon for servers to come, or
/// those of a server.
fn limits(daemon: &Daemon, inner: &mut Inner, name: &str, args: &[&str]) -> Result<String, String> {
    let default = name.contains("_default_");
    let plain = name.replace("_default_", "_");
    let (of, args): (&mut Limits, &[&str]) = match args {
        _ if default => (&mut inner.defaults, args),
        [pid, args @ ..] => (&mut server(inner, pid)?.limits, args),
        [] => return Err(format!("Unrecognized command {name}")),
    };
    match (plain.as_str(), args) {
        ("get_active_thread_percentage", []) => Ok(format!("{:.1}\n", of.threads)),
        ("set_active_thread_percentage", [value]) => {
            of.threads = percentage(value).ok_or_else(|| format!("Invalid percentage {value}"))?;
            Ok(format!("{:.1}\n", of.threads))
        }
        ("get_device_pinned_mem_limit", [device]) => {
            let limit = of.memory.get(&place(daemon, device)?);
            Ok(limit.map(|limit| format!("{}\n", limit.shown())).unwrap_or_default())
        }
        ("set_device_pinned_mem_limit", [device, value]) => {
            let place = place(daemon, device)?;
            let limit =
                Memory::parse(value).ok_or_else(|| format!("Invalid memory limit {value}"))?;
            of.memory.insert(place, limit);
            Ok(String::new())
        }
        ("get_client_priority", []) if default => Ok(format!("{}\n", of.priority)),
        ("set_client_priority", [value @ ("0" | "1")]) if default => {
            of.priority = u8::from(*value == "1");
            Ok(String::new())
        }
        _ => Err(format!("Unrecognized command {name}")),
    }
}

fn place(daemon: &Daemon, device: &str) -> Result<usize, String> {
    daemon.device(device).ok_or_else(|| format!("Invalid device {device}"))
}

fn server<'a>(inner: &'a mut Inner, pid: &str) -> Result<&'a mut Server, String> {
    let mut servers = inner.servers.iter_mut();
    servers
        .find(|server| server.pid.to_string() == pid)
        .ok_or_else(|| format!("Server {pid} not found"))
}

fn lines(pids: impl Iterator<Item = u32>) -> String {
    pids.map(|pid| format!("{pid}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(daemon: &Arc<Daemon>, line: &str) -> String {
        match run(daemon, line) {
            Outcome::Answer(text) => text,
            Outcome::Quit => "quit".to_owned(),
        }
    }

    #[test]
    fn numbers_are_kept_and_shown() {
        let daemon = Daemon::new(vec!["GPU-a".into(), "GPU-b".into()], false);
        assert_eq!(ask(&daemon, "get_default_active_thread_percentage"), "100.0\n");
        assert_eq!(ask(&daemon, "set_default_active_thread_percentage 25"), "25.0\n");
        assert_eq!(ask(&daemon, "get_default_active_thread_percentage"), "25.0\n");
        assert_eq!(ask(&daemon, "set_default_device_pinned_mem_limit GPU-b 10240M"), "");
        assert_eq!(ask(&daemon, "get_default_device_pinned_mem_limit 1"), "10G\n");
        assert_eq!(ask(&daemon, "get_default_device_pinned_mem_limit 0"), "");
    }

    #[test]
    fn what_is_wrong_is_answered_with_a_sentence() {
        let daemon = Daemon::new(vec!["GPU-a".into()], false);
        for (line, part) in [
            ("set_default_active_thread_percentage 0", "Invalid percentage"),
            ("set_default_device_pinned_mem_limit GPU-x 1G", "Invalid device GPU-x"),
            ("set_default_device_pinned_mem_limit 0 1T", "Invalid memory limit"),
            ("get_server_status 1", "Server 1 not found"),
            ("set_active_thread_percentage 1 50", "Server 1 not found"),
            ("start_server", "Usage"),
            ("nonsense", "Unrecognized command nonsense"),
        ] {
            assert!(ask(&daemon, line).contains(part), "{line}: {}", ask(&daemon, line));
        }
    }
}
