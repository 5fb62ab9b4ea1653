//! What a claim's containers get to reach their control daemon: CDI edits, as the incumbent
//! writes them. Values only.

use gpu_dra_cdi::{ContainerEdits, Mount};
use gpu_dra_model::config::MemoryLimit;

use crate::places::Places;

/// Where containers see the pipe directory; also CUDA's default.
const PIPE_IN_CONTAINER: &str = "/tmp/nvidia-mps";

/// Limits of one claim's clients, where the daemon serves others too. They can only be lower
/// than the daemon's own, and a client that unsets them gets the daemon's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, 1 to 100.
    pub active_thread_percentage: Option<u8>,
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` by device number: the place of the device among
    /// those of the daemon ([`crate::DaemonSpec::devices`]).
    pub memory: Vec<(usize, MemoryLimit)>,
}

/// The edits for every container of a claim that uses the daemon in `places`. Nothing else is
/// mounted where they lie: a daemon that the host itself runs on `/tmp/nvidia-mps` is no part
/// of what containers get of the driver.
#[must_use]
pub fn client_edits(places: &Places, limits: &ClientLimits) -> ContainerEdits {
    let mut env = vec![format!("CUDA_MPS_PIPE_DIRECTORY={PIPE_IN_CONTAINER}")];
    if let Some(percentage) = limits.active_thread_percentage {
        env.push(format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}"));
    }
    if !limits.memory.is_empty() {
        let each: Vec<String> =
            limits.memory.iter().map(|(device, limit)| format!("{device}={limit}")).collect();
        env.push(format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={}", each.join(",")));
    }
    let mount = |host: &std::path::Path, container: &str| Mount {
        host_path: host.to_string_lossy().into_owned(),
        container_path: container.to_owned(),
        options: ["rw", "nosuid", "nodev", "bind"].map(str::to_owned).to_vec(),
        fs_type: None,
    };
    ContainerEdits {
        env,
        mounts: vec![mount(&places.pipe, PIPE_IN_CONTAINER), mount(&places.shm, "/dev/shm")],
        ..ContainerEdits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::RunDir;
    use crate::spec::DaemonId;

    #[test]
    fn clients_get_pipe_shm_and_their_limits() {
        let run = RunDir::new("/run/gpu-dra/mps").unwrap();
        let places = run.places(&DaemonId::new("claim-1").unwrap());
        let plain = client_edits(&places, &ClientLimits::default());
        assert_eq!(plain.env, ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"]);
        let mounts: Vec<_> = plain
            .mounts
            .iter()
            .map(|m| (m.host_path.as_str(), m.container_path.as_str()))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/run/gpu-dra/mps/claim-1/pipe", "/tmp/nvidia-mps"),
                ("/run/gpu-dra/mps/claim-1/shm", "/dev/shm"),
            ]
        );
        let limit = MemoryLimit::new(&"10Gi".parse().unwrap()).unwrap();
        let limits = ClientLimits {
            active_thread_percentage: Some(25),
            memory: vec![(0, limit), (1, limit)],
        };
        let env = client_edits(&places, &limits).env;
        assert_eq!(
            env.get(1..).unwrap(),
            [
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M,1=10240M",
            ]
        );
    }
}
