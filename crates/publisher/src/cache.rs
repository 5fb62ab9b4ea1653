//! Our own slices as the API server last showed them, by the watch or in the answer to a
//! write. Answers count at once: a watch event that is older than them must not make us
//! create a slice twice. Nothing else of the cluster is kept, and slices are kept packed.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_slices::{PackError, Packed, PoolRef};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::watcher::Event;

/// What an event meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing that we didn't know, our own writes included.
    Nothing,
    /// A slice is new or different; perhaps the first list.
    Changed,
    /// Someone else deleted a slice of ours.
    Removed,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// By name.
    slices: BTreeMap<String, Kept>,
    /// UIDs of slices that we deleted and whose last event hasn't come yet.
    deleted: BTreeSet<String>,
    /// The list that is coming in; while there is one, `slices` may be out of date.
    listing: Option<BTreeMap<String, Kept>>,
    synced: bool,
}

/// What is asked for often, and the slice.
#[derive(Debug)]
struct Kept {
    uid: Option<String>,
    /// Resource versions of one resource type can be compared as numbers (KEP-5504; true of
    /// every server with etcd before). One that is no number counts as older than any.
    version: Option<u128>,
    pool: String,
    generation: i64,
    slice: Packed<ResourceSlice>,
}

impl Cache {
    /// Whether the content can be relied on for writing. While a list is under way it
    /// can't: the list may be from before a write and arrive after it.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced && self.listing.is_none()
    }

    /// Forget that we know anything until the next list is complete.
    pub(crate) fn unsync(&mut self) {
        self.synced = false;
        self.listing = None;
    }

    /// All slices, unpacked.
    pub(crate) fn slices(&self) -> Result<Vec<ResourceSlice>, PackError> {
        self.slices.values().map(|kept| kept.slice.unpack()).collect()
    }

    /// The highest generation of the pool.
    pub(crate) fn generation(&self, pool: &PoolRef) -> Option<i64> {
        let ours = self.slices.values().filter(|kept| kept.pool == pool.pool.as_str());
        ours.map(|kept| kept.generation).max()
    }

    /// Takes in an event of the watch.
    pub(crate) fn observe(&mut self, event: Event<ResourceSlice>) -> Seen {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Seen::Nothing
            }
            Event::InitApply(slice) => {
                if let (Some(listing), Some((name, slice))) = (&mut self.listing, kept(slice)) {
                    listing.insert(name, slice);
                }
                Seen::Nothing
            }
            Event::InitDone => self.finish_list(),
            Event::Apply(slice) => self.apply(slice),
            Event::Delete(slice) => self.delete(&slice),
        }
    }

    /// Takes in the server's answer to a create or an update.
    pub(crate) fn wrote(&mut self, slice: ResourceSlice) {
        if let Some((name, slice)) = kept(slice) {
            self.slices.insert(name, slice);
        }
    }

    /// We deleted this slice.
    pub(crate) fn removed(&mut self, name: &str) {
        let uid = self.slices.remove(name).and_then(|kept| kept.uid);
        self.deleted.extend(uid);
    }

    fn finish_list(&mut self) -> Seen {
        let Some(listed) = self.listing.take() else { return Seen::Nothing };
        let gone = self.slices.values().any(|old| !listed.values().any(|new| old.uid == new.uid));
        self.slices = listed;
        self.deleted.clear();
        self.synced = true;
        if gone { Seen::Removed } else { Seen::Changed }
    }

    fn apply(&mut self, slice: ResourceSlice) -> Seen {
        let Some((name, slice)) = kept(slice) else { return Seen::Nothing };
        if slice.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid)) {
            return Seen::Nothing;
        }
        let known = self.slices.get(&name);
        if known.is_some_and(|known| known.uid == slice.uid && known.version >= slice.version) {
            return Seen::Nothing;
        }
        self.slices.insert(name, slice);
        Seen::Changed
    }

    fn delete(&mut self, slice: &ResourceSlice) -> Seen {
        if slice.metadata.uid.as_ref().is_some_and(|uid| self.deleted.remove(uid)) {
            return Seen::Nothing;
        }
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        match self.slices.get(name) {
            Some(known) if known.uid == slice.metadata.uid => {
                self.slices.remove(name);
                Seen::Removed
            }
            _ => Seen::Nothing,
        }
    }
}

/// `managedFields` are as large as the slice itself and of no use to us.
fn kept(mut slice: ResourceSlice) -> Option<(String, Kept)> {
    slice.metadata.managed_fields = None;
    let name = slice.metadata.name.clone()?;
    let kept = Kept {
        uid: slice.metadata.uid.clone(),
        version: slice.metadata.resource_version.as_ref().and_then(|text| text.parse().ok()),
        pool: slice.spec.pool.name.clone(),
        generation: slice.spec.pool.generation,
        slice: Packed::new(&slice),
    };
    Some((name, kept))
}
