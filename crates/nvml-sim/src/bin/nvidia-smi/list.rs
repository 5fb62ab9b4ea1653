//! What there is: versions, GPUs and MIG devices.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use crate::failure::{Failure, text};
use crate::target::Smi;

pub(crate) fn versions(smi: &Smi) -> Result<(), Failure> {
    let driver = smi.nvml.sys_driver_version()?;
    let cuda = smi.nvml.sys_cuda_driver_version()?;
    let short = driver.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    println!("NVIDIA-SMI version  : {driver}");
    println!("NVML version        : {short}");
    println!("DRIVER version      : {driver}");
    println!("CUDA Version        : {}.{}", cuda / 1000, cuda % 1000 / 10);
    Ok(())
}

pub(crate) fn gpus(smi: &Smi) -> Result<(), Failure> {
    for target in smi.targets(None)? {
        let device = &target.device;
        println!("GPU {}: {} (UUID: {})", target.index, device.name()?, device.uuid()?);
        for index in 0..device.mig_device_count()? {
            let mig = match device.mig_device_by_index(index) {
                Ok(mig) => mig,
                Err(NvmlError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            let name = mig.name()?;
            let profile = name.rsplit(' ').next().unwrap_or_default();
            println!("  MIG {profile:<11} Device {index:>2}: (UUID: {})", mig.uuid()?);
        }
    }
    Ok(())
}

pub(crate) fn describe(smi: &Smi, ids: Option<&str>) -> Result<(), Failure> {
    let targets = smi.targets(ids)?;
    println!("==============NVSMI LOG==============\n");
    line(0, "Driver Version", &smi.nvml.sys_driver_version()?);
    let cuda = smi.nvml.sys_cuda_driver_version()?;
    line(0, "CUDA Version", &format!("{}.{}", cuda / 1000, cuda % 1000 / 10));
    line(0, "Attached GPUs", &smi.nvml.device_count()?.to_string());
    for target in targets {
        println!("\nGPU {}", target.bus_id);
        gpu(&target.device);
    }
    Ok(())
}

fn gpu(device: &Device<'_>) {
    let mode = |on: u32| if on == 1 { "Enabled" } else { "Disabled" };
    line(1, "Product Name", &shown(device.name()));
    line(1, "Product Architecture", &shown(device.architecture()));
    let persistence = device.is_in_persistent_mode();
    line(1, "Persistence Mode", &shown(persistence.map(|on| mode(on.into()))));
    println!("    MIG Mode");
    let mig = device.mig_mode();
    line(2, "Current", &shown(mig.as_ref().map(|mig| mode(mig.current))));
    line(2, "Pending", &shown(mig.as_ref().map(|mig| mode(mig.pending))));
    line(1, "Serial Number", &shown(device.serial()));
    line(1, "GPU UUID", &shown(device.uuid()));
    line(1, "Minor Number", &shown(device.minor_number()));
    line(1, "VBIOS Version", &shown(device.vbios_version()));
    println!("    FB Memory Usage");
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let memory = device.memory_info();
    line(2, "Total", &shown(memory.as_ref().map(|memory| mib(memory.total))));
    line(2, "Reserved", &shown(memory.as_ref().map(|memory| mib(memory.reserved))));
    line(2, "Used", &shown(memory.as_ref().map(|memory| mib(memory.used))));
    line(2, "Free", &shown(memory.as_ref().map(|memory| mib(memory.free))));
    line(1, "Compute Mode", &shown(device.compute_mode().map(|mode| format!("{mode:?}"))));
}

fn line(depth: usize, name: &str, value: &str) {
    let indent = 4 * depth;
    println!("{:indent$}{name:<width$} : {value}", "", width = 42 - indent);
}

/// What isn't supported is `N/A`; what fails says how.
fn shown<T: ToString, E: std::borrow::Borrow<NvmlError>>(value: Result<T, E>) -> String {
    match value {
        Ok(value) => value.to_string(),
        Err(error) => match error.borrow() {
            NvmlError::NotSupported => "N/A".to_owned(),
            other => format!("[{}]", text(other)),
        },
    }
}
