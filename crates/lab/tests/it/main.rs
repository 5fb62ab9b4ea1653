//! Tests of the embedded control plane through its public API.

mod rejections;
