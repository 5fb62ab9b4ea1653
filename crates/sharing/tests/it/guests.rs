//! Who may ask, and what happens to those who ask nonsense.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gpu_dra_sharing::MpsError;
use serde_json::json;

use crate::staged::{Staged, id, spec};

/// What the host says to these bytes before it closes or the time is over.
fn send(staged: &Staged, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(staged.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // The host may have closed before it has read all.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut said = Vec::new();
    drop(stream.read_to_end(&mut said));
    String::from_utf8(said).unwrap()
}

#[test]
fn nonsense_is_answered_with_a_sentence_and_harms_nobody() {
    let staged = Staged::new();
    let _host = staged.host();
    for (bytes, part) in [
        (&b"\n"[..], "no JSON object with a version"),
        (b"GET / HTTP/1.1\r\n\r\n", "no JSON object with a version"),
        (b"\xff\xfe\x00\n", "no JSON object with a version"),
        (b"{\"v\":2,\"call\":\"list\"}\n", "version 2, and this side speaks 1"),
        (b"{\"v\":1,\"call\":\"dance\"}\n", "unknown variant `dance`"),
        (b"{\"v\":1,\"call\":\"list\",\"more\":1}\n", "unknown field `more`"),
        (b"{\"v\":1,\"call\":{\"stop\":{\"id\":\"../x\"}}}\n", "names no MPS daemon"),
        (
            b"{\"v\":1,\"call\":{\"ensure\":{\"id\":\"x\",\"spec\":{\"devices\":[\"0\"]}}}}\n",
            "no device UUID",
        ),
    ] {
        let said = send(&staged, bytes);
        assert!(said.contains("notUnderstood") && said.contains(part), "{bytes:?}: {said}");
    }
    let said = send(&staged, &vec![b'['; 1 << 20]);
    assert!(said.is_empty() || said.contains("bytes in one line"), "{said}");
    assert_eq!(send(&staged, b"{\"v\":1,\"call\":"), "", "half a call is no call");
    assert_eq!(staged.client().list().unwrap(), []);
}

#[test]
fn several_calls_may_share_a_connection() {
    let staged = Staged::new();
    let _host = staged.host();
    let said = send(
        &staged,
        b"{\"v\":1,\"call\":\"list\"}\n{\"v\":1,\"call\":{\"stop\":{\"id\":\"nobody\"}}}\n",
    );
    assert_eq!(said, "{\"v\":1,\"reply\":{\"daemons\":[]}}\n{\"v\":1,\"reply\":\"stopped\"}\n");
}

#[test]
fn the_socket_is_roots_and_a_stranger_is_refused_even_so() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: to be another user needs root");
        return;
    }
    let staged = Staged::new();
    let _host = staged.host();
    let mode = fs::metadata(staged.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Somebody opens everything up.
    fs::set_permissions(staged.socket(), Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(staged.socket().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let socket = staged.socket();
    let said = std::thread::spawn(move || {
        // Of this thread alone.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        drop(stream.write_all(b"{\"v\":1,\"call\":\"list\"}\n"));
        let mut said = String::new();
        drop(BufReader::new(stream).read_line(&mut said));
        said
    });
    let said = said.join().unwrap();
    assert!(said.contains("forbidden") && said.contains("user 65534 may not"), "{said}");
    staged.client().list().unwrap();
}

#[test]
fn who_holds_all_connections_does_not_stop_the_daemons() {
    let staged = Staged::new();
    let host = staged.host();
    let client = staged.client();
    client.ensure(&id("claim"), &spec(&staged, 0, json!({}))).unwrap();
    let held: Vec<_> = (0..128).map(|_| UnixStream::connect(staged.socket()).unwrap()).collect();
    let error = client.list().unwrap_err();
    assert!(matches!(error, MpsError::Refused { .. } | MpsError::NoAnswer(_)), "{error}");
    drop(held);
    while client.list().is_err() {
        std::thread::sleep(Duration::from_millis(2));
    }
    client.stop(&id("claim")).unwrap();
    drop(host);
    let away = client.list().unwrap_err();
    assert!(away.to_string().contains("isn't running"), "{away}");
    staged.assert_nothing_is_left();
}

#[test]
fn a_second_host_does_not_take_the_first_ones_place() {
    let staged = Staged::new();
    let _host = staged.host();
    let second = gpu_dra_sharing::run(staged.settings(), || ());
    let error = second.unwrap_err().to_string();
    assert!(error.contains("another MPS host may be running"), "{error}");
    staged.client().list().unwrap();
}
