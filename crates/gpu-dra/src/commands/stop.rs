//! How programs that run for long are told to stop: SIGTERM or SIGINT.

use tokio::signal::unix::{SignalKind, signal};

/// Done when this process is told to stop. Listens from the call on, not from the first poll.
pub(crate) fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
    })
}
