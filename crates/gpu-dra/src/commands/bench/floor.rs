//! The least that a Prepare can cost: one GET of the claim, two journal writes and one CDI
//! file, each written, synced and renamed by a bare loop. That count is fixed. As for a real
//! claim, the names are new each time.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::api::resource::v1::ResourceClaim;

/// About what the journal's and the CDI spec's files have, so that they cost the same.
const JOURNAL_BYTES: usize = 500;
const CDI_BYTES: usize = 12_000;

/// Where the bare loop writes.
pub(super) struct Floor {
    dir: PathBuf,
    claims: kube::Api<ResourceClaim>,
}

impl Floor {
    pub(super) fn new(dir: &Path, claims: kube::Api<ResourceClaim>) -> anyhow::Result<Self> {
        let dir = dir.join("floor");
        std::fs::create_dir_all(&dir).with_context(|| format!("can't make {}", dir.display()))?;
        Ok(Self { dir, claims })
    }

    /// Does it once.
    pub(super) async fn once(&self, claim: &str) -> anyhow::Result<()> {
        self.claims.get(claim).await?;
        let [journal, spec] = self.files(claim);
        tokio::task::spawn_blocking(move || {
            write(&journal, JOURNAL_BYTES)?;
            write(&spec, CDI_BYTES)?;
            write(&journal, JOURNAL_BYTES)
        })
        .await?
        .context("floor")
    }

    /// Removes what [`Floor::once`] wrote; not measured.
    pub(super) fn clean(&self, claim: &str) -> anyhow::Result<()> {
        for file in self.files(claim) {
            std::fs::remove_file(&file)
                .with_context(|| format!("can't remove {}", file.display()))?;
        }
        Ok(())
    }

    fn files(&self, claim: &str) -> [PathBuf; 2] {
        ["journal", "spec"].map(|kind| self.dir.join(format!("{claim}-{kind}")))
    }
}

fn write(path: &Path, size: usize) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(&vec![b'x'; size])?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
