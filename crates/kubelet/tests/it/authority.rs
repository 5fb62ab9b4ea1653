//! What a kubelet's `:authority` does to us (field reports K01, K02). No Rust HTTP client
//! would send such a thing, so the frames are made by hand.
//!
//! If `a_plain_socket_name_never_gets_through` fails one day, the HTTP stack has learned to
//! live with it, and the `@` in the socket names could go for kubelets alone; other clients
//! would still want it.

use std::path::Path;

use gpu_dra_kubelet::proto::registration::PluginInfo;
use gpu_dra_kubelet::{Server, Stopped};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::support::{Claims, LONG, Root, soon};

const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
const PROTOCOL_ERROR: u32 = 1;

#[derive(Debug, PartialEq)]
enum Outcome {
    /// The first message of the response.
    Message(Vec<u8>),
    /// RST_STREAM or GOAWAY with this error code.
    Reset(u32),
    /// A response without a message.
    NoMessage,
    Closed,
}

/// One unary call with an empty message and this `:authority`, or none.
async fn call(socket: &Path, path: &str, authority: Option<&str>) -> Outcome {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut headers = Vec::new();
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path)];
    let authority = authority.map(|authority| (":authority", authority));
    let rest = [("content-type", "application/grpc"), ("te", "trailers")];
    for (name, value) in pseudo.into_iter().chain(authority).chain(rest) {
        headers.push(0); // literal, not indexed, new name
        literal(&mut headers, name);
        literal(&mut headers, value);
    }
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &headers)).await.unwrap();
    stream.write_all(&frame(DATA, END_STREAM, 1, &[0; 5])).await.unwrap();
    soon(outcome(&mut stream)).await
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A string as HPACK has it, not Huffman coded: its length with a 7-bit prefix, its bytes.
fn literal(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).unwrap());
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        block.push(u8::try_from(length).unwrap());
    }
    block.extend(text.as_bytes());
}

async fn outcome(stream: &mut UnixStream) -> Outcome {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return Outcome::Closed;
        }
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match kind {
            SETTINGS if flags & ACK == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
            }
            DATA => message.extend(&payload),
            HEADERS if flags & END_STREAM != 0 => {
                // The trailers. A message has 5 bytes before it: not compressed, length.
                return if message.len() > 5 {
                    Outcome::Message(message.split_off(5))
                } else {
                    Outcome::NoMessage
                };
            }
            RST_STREAM => return Outcome::Reset(code(0)),
            GOAWAY => return Outcome::Reset(code(4)),
            _ => {}
        }
    }
}

/// A path as grpc-go puts it in the authority: it leaves letters, digits and
/// `-_.~!$&'()*+,;=:[]@`, and escapes the rest.
fn as_grpc_go_does(path: &Path) -> String {
    path.to_str()
        .unwrap()
        .bytes()
        .map(|b| match b {
            b if b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]@".contains(&b) => {
                char::from(b).to_string()
            }
            b => format!("%{b:02X}"),
        })
        .collect()
}

#[tokio::test]
async fn a_kubelets_authority_reaches_us_on_both_sockets() {
    let root = Root::new();
    let uid = "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01";
    for pod_uid in [None, Some(uid)] {
        let paths = root.paths(pod_uid);
        let server = Server::start(paths.clone(), Claims::quick()).await.unwrap();
        let registration = as_grpc_go_does(paths.registration());
        assert!(registration.starts_with("%2F") && registration.ends_with("@reg.sock"));
        let usual = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.nvidia.com@reg.sock";
        for authority in [Some(registration.as_str()), Some(usual), Some("localhost"), None] {
            let outcome = call(paths.registration(), GET_INFO, authority).await;
            let Outcome::Message(message) = outcome else { panic!("{authority:?}: {outcome:?}") };
            let info: PluginInfo = prost::Message::decode(message.as_slice()).unwrap();
            assert_eq!(info.name, "gpu.nvidia.com", "{authority:?}");
            assert_eq!(info.endpoint, paths.endpoint());
        }
        // An older kubelet dials the service socket in the same way.
        let service = as_grpc_go_does(paths.service());
        let prepare = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
        for authority in [service.as_str(), "localhost"] {
            // An empty request has an empty answer: five bytes and no message.
            assert_eq!(
                call(paths.service(), prepare, Some(authority)).await,
                Outcome::NoMessage,
                "{authority}"
            );
        }
        assert_eq!(soon(server.stop(LONG)).await, Stopped::Drained);
    }
}

/// The reason for the `@`: see the table in `paths.rs`.
#[tokio::test]
async fn a_plain_socket_name_never_gets_through() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let plain = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.nvidia.com-reg.sock";
    let socket = root.paths(None).registration().to_path_buf();
    assert_eq!(call(&socket, GET_INFO, Some(plain)).await, Outcome::Reset(PROTOCOL_ERROR));
    drop(server);
}

/// The limit of the `@` (field report K02): a raw path or an empty authority is still
/// refused, by the HTTP stack and before our code. A kubelet sends neither.
#[tokio::test]
async fn a_raw_path_and_an_empty_authority_are_still_refused() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let socket = root.paths(None).registration().to_path_buf();
    for authority in ["/var/lib/kubelet/plugins_registry/gpu.nvidia.com@reg.sock", ""] {
        let outcome = call(&socket, GET_INFO, Some(authority)).await;
        assert_eq!(outcome, Outcome::Reset(PROTOCOL_ERROR), "{authority:?}");
    }
    drop(server);
}
