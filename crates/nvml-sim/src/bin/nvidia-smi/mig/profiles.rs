//! `mig -lgip`: the profiles of GPU instances and how many more of each there can be.

use gpu_dra_sim_data::mig_rules;

use super::gpus::MigGpu;
use super::table;

pub(super) fn list(gpus: &[MigGpu<'_>]) {
    let mut rows = Vec::new();
    for gpu in gpus {
        let occupied = gpu.state.occupied();
        for (id, profile) in gpu.profiles() {
            let hundredths = profile.memory_mib * 100 / 1024;
            let free = mig_rules::remaining(&gpu.table, &occupied, id);
            rows.push(format!(
                "{:>4}  MIG {:<15}{id:>3}{:>6}/{:<2}{:>8}.{:02}{:>8}{:>7}{:>6}{:>6}",
                gpu.index,
                profile.name,
                free,
                profile.max,
                hundredths / 100,
                hundredths % 100,
                "No",
                profile.multiprocessors,
                profile.decoders,
                profile.encoders,
            ));
            rows.push(format!(
                "{:>60}{:>6}{:>6}",
                profile.copy_engines, profile.jpeg_engines, profile.ofa_engines
            ));
        }
    }
    table::print::<76>(
        &[
            " GPU instance profiles:",
            " GPU  Name               ID   Instances   Memory     P2P     SM   DEC   ENC",
            "                              Free/Total    GiB              CE  JPEG   OFA",
        ],
        &rows,
    );
}
