//! Compiles `proto/` with protox, so that no system protoc is needed.

use std::path::Path;

const PROTOS: [&str; 5] = [
    "pluginregistration.proto",
    "dra-v1.proto",
    "dra-v1beta1.proto",
    "dra-health-v1alpha1.proto",
    "dra-health-v1.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", folder.display());
    let files = protox::compile(PROTOS, [&folder])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}
