//! The way into every exported function, and what its body sees of the simulation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_sim_data::control::{Control, GpuControl};
use gpu_dra_sim_data::mig_table::MigTable;
use gpu_dra_sim_data::node::{Gpu, Node};
use gpu_dra_sim_data::state::{ComputeInstance, GpuInstance, GpuState, HardwareState};
use nvml_wrapper_sys::bindings as sys;

use crate::abi::{ComputeInstanceArg, DeviceArg, GpuInstanceArg};
use crate::code::{Answer, Code};
use crate::garbage;
use crate::handles::{self, Thing};
use crate::session::{self, Session};

/// One call of an exported function.
pub(crate) struct Call {
    pub(crate) session: Arc<Session>,
    pub(crate) control: Arc<Control>,
}

/// Runs the body of an export. `subjects` are the addresses of the handles among its
/// arguments; the first that is one of ours is what the call is about.
pub(crate) fn enter(
    function: &str,
    subjects: &[Option<usize>],
    body: impl FnOnce(&Call) -> Answer,
) -> sys::nvmlReturn_t {
    returned(|| {
        let session = session::current()?;
        let control = session.control()?;
        let about = subjects.iter().flatten().find_map(|address| handles::thing(*address));
        let gpu = about.and_then(Thing::gpu);
        session.log(&control, function, gpu)?;
        let mut garbage = None;
        if let Some((fault, nth)) = session.fault(&control, function, gpu) {
            std::thread::sleep(Duration::from_millis(fault.delay_ms));
            if let Some(code) = fault.error.filter(|code| *code != 0) {
                return Err(Code(code));
            }
            garbage = fault.garbage.map(|seed| seed.wrapping_add(nth.into()));
        }
        let call = Call { session, control };
        if let Some(gpu) = gpu {
            call.not_lost(gpu)?;
        }
        match garbage {
            Some(seed) => garbage::instead(seed, || body(&call)),
            None => body(&call),
        }
    })
}

/// The return code of a body; a panic becomes UNKNOWN.
pub(crate) fn returned(body: impl FnOnce() -> Answer) -> sys::nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// A GPU or MIG device that a call is about.
pub(crate) enum Device<'call> {
    /// A whole GPU.
    Gpu(usize, &'call Gpu),
    /// A MIG device.
    Mig(MigDevice<'call>),
}

/// A MIG device with all that it's part of.
pub(crate) struct MigDevice<'call> {
    pub(crate) position: usize,
    pub(crate) gpu: &'call Gpu,
    pub(crate) table: &'call MigTable,
    pub(crate) instance: GpuInstance,
    pub(crate) compute: ComputeInstance,
}

impl Call {
    pub(crate) fn node(&self) -> &Node {
        &self.session.node
    }

    pub(crate) fn state(&self) -> Answer<Arc<HardwareState>> {
        self.session.state()
    }

    /// What is wrong with a GPU.
    pub(crate) fn trouble(&self, position: usize) -> GpuControl {
        self.control.of_gpu(self.node(), position).cloned().unwrap_or_default()
    }

    pub(crate) fn not_lost(&self, position: usize) -> Answer {
        match self.control.lost(self.node(), position) {
            Some(_) => Err(Code::GPU_IS_LOST),
            None => Ok(()),
        }
    }

    fn at(&self, position: usize) -> Answer<&Gpu> {
        self.node().gpus.get(position).ok_or(Code::INVALID_ARGUMENT)
    }

    /// The GPU or MIG device of a handle.
    pub(crate) fn device(&self, argument: DeviceArg) -> Answer<Device<'_>> {
        match handles::thing(argument.0) {
            Some(Thing::Gpu { gpu: position, mode_changes }) => {
                let gpu = self.at(position)?;
                if gpu.model.mig.is_some() && self.gpu_state(position)?.mode_changes != mode_changes
                {
                    return Err(Code::INVALID_ARGUMENT);
                }
                Ok(Device::Gpu(position, gpu))
            }
            Some(Thing::MigDevice { gpu: position, instance, compute, birth }) => {
                let gpu = self.at(position)?;
                let table = gpu.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
                let (instance, compute) = self.compute_instance(position, instance, compute)?;
                if compute.birth != birth {
                    return Err(Code::INVALID_ARGUMENT);
                }
                Ok(Device::Mig(MigDevice { position, gpu, table, instance, compute }))
            }
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// The handle that a GPU has now.
    pub(crate) fn gpu_handle(&self, position: usize) -> Answer<sys::nvmlDevice_t> {
        let mode_changes = self.gpu_state(position)?.mode_changes;
        Ok(handles::handle(Thing::Gpu { gpu: position, mode_changes }))
    }

    /// A whole GPU; functions that MIG devices don't have go through here.
    pub(crate) fn gpu(&self, argument: DeviceArg) -> Answer<(usize, &Gpu)> {
        match self.device(argument)? {
            Device::Gpu(position, gpu) => Ok((position, gpu)),
            Device::Mig(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The GPU of a handle, or that which the MIG device of a handle is part of.
    pub(crate) fn physical(&self, argument: DeviceArg) -> Answer<(usize, &Gpu)> {
        match self.device(argument)? {
            Device::Gpu(position, gpu) => Ok((position, gpu)),
            Device::Mig(mig) => Ok((mig.position, mig.gpu)),
        }
    }

    /// A whole GPU that can do MIG, whatever its mode.
    pub(crate) fn mig_gpu(&self, argument: DeviceArg) -> Answer<(usize, &MigTable)> {
        let (position, gpu) = self.gpu(argument)?;
        Ok((position, gpu.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?))
    }

    /// The changeable state of one GPU.
    pub(crate) fn gpu_state(&self, position: usize) -> Answer<GpuState> {
        self.state()?.gpus.get(position).cloned().ok_or(Code::UNKNOWN)
    }

    /// Changes the state of one GPU for all processes.
    pub(crate) fn update<T>(
        &self,
        position: usize,
        change: impl FnOnce(&mut GpuState) -> Answer<T>,
    ) -> Answer<T> {
        self.session.update(|_, state| change(state.gpus.get_mut(position).ok_or(Code::UNKNOWN)?))
    }

    /// The GPU instance of a handle with its GPU's position and table.
    pub(crate) fn instance(
        &self,
        argument: GpuInstanceArg,
    ) -> Answer<(usize, &MigTable, GpuInstance)> {
        let Some(Thing::GpuInstance { gpu, instance, birth }) = handles::thing(argument.0) else {
            return Err(Code::INVALID_ARGUMENT);
        };
        let table = self.at(gpu)?.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let state = self.gpu_state(gpu)?;
        let found = state.instance(instance).map_err(|_| Code::INVALID_ARGUMENT)?;
        if found.birth != birth {
            return Err(Code::INVALID_ARGUMENT);
        }
        Ok((gpu, table, found.clone()))
    }

    /// The compute instance of a handle with its GPU's position and GPU instance.
    pub(crate) fn compute(
        &self,
        argument: ComputeInstanceArg,
    ) -> Answer<(usize, GpuInstance, ComputeInstance)> {
        let Some(Thing::ComputeInstance { gpu, instance, compute, birth }) =
            handles::thing(argument.0)
        else {
            return Err(Code::INVALID_ARGUMENT);
        };
        let (instance, compute) = self.compute_instance(gpu, instance, compute)?;
        if compute.birth != birth {
            return Err(Code::INVALID_ARGUMENT);
        }
        Ok((gpu, instance, compute))
    }

    fn compute_instance(
        &self,
        position: usize,
        instance: u32,
        compute: u32,
    ) -> Answer<(GpuInstance, ComputeInstance)> {
        let state = self.gpu_state(position)?;
        state
            .mig_devices()
            .find(|(gi, ci)| gi.id == instance && ci.id == compute)
            .map(|(gi, ci)| (gi.clone(), *ci))
            .ok_or(Code::INVALID_ARGUMENT)
    }

    /// Drivers tell recovery actions from branch 565 on.
    pub(crate) fn knows_recovery_action(&self) -> bool {
        let branch = self.node().driver.version.split('.').next();
        branch.and_then(|branch| branch.parse::<u32>().ok()).is_some_and(|branch| branch >= 565)
    }

    /// The positions of the GPUs that are enumerated, in NVML's order.
    pub(crate) fn visible(&self) -> Vec<usize> {
        if self.control.no_gpus {
            return Vec::new();
        }
        let node = self.node();
        let dropped = gpu_dra_sim_data::control::Lost::Dropped;
        (0..)
            .zip(&node.gpus)
            .filter(|(position, gpu)| {
                self.control.lost(node, *position) != Some(dropped)
                    && (!self.control.hide_absent_nodes || self.session.has_device_node(gpu.minor))
            })
            .map(|(position, _)| position)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_reach_the_caller() {
        assert_eq!(returned(|| panic!("as if something were wrong here")), Code::UNKNOWN.0);
        assert_eq!(returned(|| Err(Code::IN_USE)), 19);
        assert_eq!(returned(|| Ok(())), 0);
    }
}
