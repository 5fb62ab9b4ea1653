//! Our own slices as the API server last showed them, by the watch or in the answer to a
//! write. Answers count at once: a watch event that is older than them must not make us
//! create a slice twice. Nothing else of the cluster is kept.

use std::collections::{BTreeMap, BTreeSet};

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
    slices: BTreeMap<String, ResourceSlice>,
    /// UIDs of slices that we deleted and whose last event hasn't come yet.
    deleted: BTreeSet<String>,
    /// The list that is coming in; while there is one, `slices` may be out of date.
    listing: Option<BTreeMap<String, ResourceSlice>>,
    synced: bool,
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

    pub(crate) fn slices(&self) -> impl Iterator<Item = &ResourceSlice> {
        self.slices.values()
    }

    /// Takes in an event of the watch.
    pub(crate) fn observe(&mut self, event: Event<ResourceSlice>) -> Seen {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Seen::Nothing
            }
            Event::InitApply(slice) => {
                if let (Some(listing), Some((name, slice))) = (&mut self.listing, named(slice)) {
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
        if let Some((name, slice)) = named(slice) {
            self.slices.insert(name, slice);
        }
    }

    /// We deleted this slice.
    pub(crate) fn removed(&mut self, name: &str) {
        let uid = self.slices.remove(name).and_then(|slice| slice.metadata.uid);
        self.deleted.extend(uid);
    }

    fn finish_list(&mut self) -> Seen {
        let Some(listed) = self.listing.take() else { return Seen::Nothing };
        let gone = self.slices.values().any(|old| !listed.values().any(|new| same(old, new)));
        self.slices = listed;
        self.deleted.clear();
        self.synced = true;
        if gone { Seen::Removed } else { Seen::Changed }
    }

    fn apply(&mut self, slice: ResourceSlice) -> Seen {
        if slice.metadata.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid)) {
            return Seen::Nothing;
        }
        let Some((name, slice)) = named(slice) else { return Seen::Nothing };
        let known = self.slices.get(&name);
        if known.is_some_and(|known| same(known, &slice) && version(known) >= version(&slice)) {
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
            Some(known) if same(known, slice) => {
                self.slices.remove(name);
                Seen::Removed
            }
            _ => Seen::Nothing,
        }
    }
}

/// `managedFields` are as large as the slice itself and of no use to us.
fn named(mut slice: ResourceSlice) -> Option<(String, ResourceSlice)> {
    slice.metadata.managed_fields = None;
    slice.metadata.name.clone().map(|name| (name, slice))
}

fn same(a: &ResourceSlice, b: &ResourceSlice) -> bool {
    a.metadata.uid == b.metadata.uid
}

/// Resource versions of one resource type can be compared as numbers (KEP-5504; true of
/// every server with etcd before). One that is no number counts as older than any.
fn version(slice: &ResourceSlice) -> Option<u128> {
    slice.metadata.resource_version.as_deref()?.parse().ok()
}
