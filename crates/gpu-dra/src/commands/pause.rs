//! `gpu-dra pause`: does nothing until it is told to stop. For pods whose work is done by their
//! init containers, from an image that has neither shell nor sleep.

use super::stop::told_to_stop;

pub(crate) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        told_to_stop()?.await;
        Ok(())
    })
}
