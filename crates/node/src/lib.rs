//! The node agent: what runs on each GPU node.
//!
//! ```text
//! events thread: NVML ──▶ Xids ─────────────────────────────────┐
//! survey thread: NVML ──▶ Inventory ──names, slices──▶ Survey ──▶ health ──taints──▶ publisher ──▶ API server
//!                                                        │          └──▶ health stream
//! kubelet ──gRPC──▶ service ── GET claim ── executor ◀───┘ (which devices there are)
//!                                  ├─ journal (one file a claim)
//!                                  ├─ effects: hardware steps, content of the CDI spec
//!                                  └─ CDI spec file ──▶ container runtime
//! all of them ──▶ metrics, readiness ──▶ http
//! ```
//!
//! It orders what the other crates decide and do. It writes nothing to the API server but its
//! own slices and Events on its node, and keeps nothing in memory alone that a restart would miss.

#![forbid(unsafe_code)]

mod adopt;
mod asking;
pub mod claim_pods;
pub mod claim_source;
pub mod clear_request;
mod crew;
mod desired;
pub mod events;
pub mod health;
mod health_news;
mod health_run;
mod health_store;
mod health_stream;
mod health_taints;
pub mod http;
mod known_gpus;
pub mod machine;
pub mod metrics;
pub mod mps_watch;
pub mod neighbours;
mod node_watch;
pub mod offline;
pub mod readiness;
mod recovery;
pub mod requirements;
mod run;
pub mod runtime_config;
pub mod service;
pub mod settings;
mod small;
mod start;
pub mod survey;
pub mod sweep;

pub use run::{NodeError, driver, run};
pub use settings::Settings;
