//! Which pool is to be published: what the survey offers, with the taints of health, unless
//! somebody else has the GPUs. It publishes nothing itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpu_dra_model::Inventory;
use gpu_dra_slices::{Names, PackedPool, Policy, build};
use tokio::sync::watch;

use crate::crew::Crew;
use crate::health::ToldReceiver;
use crate::node_watch::NodeSeen;

/// The pools to be published, for as long as there are both news and a publisher: nothing before
/// the Node is known, and an empty pool while a device plugin has the GPUs.
pub(crate) fn desired(
    crew: &Crew,
    mut told: ToldReceiver,
    mut node: watch::Receiver<Option<NodeSeen>>,
) -> watch::Receiver<Option<Arc<PackedPool>>> {
    let (sender, receiver) = watch::channel(None);
    let nothing =
        build(&Inventory::default(), &Names::default(), &Policy::default(), &BTreeSet::new());
    let nothing = Arc::new(PackedPool::new(&nothing.pool));
    crew.spawn("choosing what is published", async move {
        loop {
            let pool = told.borrow_and_update().as_ref().map(|told| Arc::clone(&told.pool));
            let pool = match node.borrow_and_update().as_ref() {
                None => None,
                Some(seen) if seen.device_plugin.is_some() => Some(Arc::clone(&nothing)),
                Some(_) => pool,
            };
            sender.send_if_modified(|now| {
                let is_news = pool.is_some() && *now != pool;
                if is_news {
                    *now = pool;
                }
                is_news
            });
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = node.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    receiver
}
