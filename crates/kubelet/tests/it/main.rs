//! A kubelet and a driver over real sockets: the plugin's side of the scenarios of the
//! kubelet's own node e2e suite (`test/e2e_node/dra_test.go`), and what went wrong in the field.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test says where"
)]

mod authority;
mod calls;
mod health;
mod lifecycle;
mod registration;
mod support;
