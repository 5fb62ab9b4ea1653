//! Keeping the DeviceClasses in the API server as they should be, and telling in each GpuClass
//! how it stands. Deciding (judge, status, state) and acting (watches, writer, keeper) are
//! apart.

mod judge;
mod keeper;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod unguarded;
mod watches;
mod writer;

pub(crate) use judge::FIELD_MANAGER;
pub(crate) use keeper::Keeper;
pub(crate) use watches::chain;
