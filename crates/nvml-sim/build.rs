//! Gives the library its SONAME, and makes an export of every NVML name that no source file
//! of `src/exports` implements: it answers NOT_SUPPORTED.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rerun-if-changed=names.txt");
    println!("cargo:rerun-if-changed=src/exports");
    let mut implemented = BTreeSet::new();
    for entry in fs::read_dir("src/exports")? {
        let text = fs::read_to_string(entry?.path())?;
        implemented.extend(text.split("fn nvml").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            format!("nvml{}", rest.get(..end.unwrap_or(rest.len())).unwrap_or_default())
        }));
    }
    let names = fs::read_to_string("names.txt")?;
    let stubs: String = names
        .lines()
        .filter(|name| !name.is_empty() && !implemented.contains(*name))
        .map(|name| format!("not_modelled!({name});\n"))
        .collect();
    let out = std::env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join("not_modelled.rs"), stubs)?;
    Ok(())
}
