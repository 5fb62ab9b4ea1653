//! The compiler's proof that every implemented function has the signature of the bindings
//! that clients use: each is assigned to the field of its name.

use nvml_wrapper_sys::bindings::NvmlLib;

macro_rules! same_signatures {
    ($($module:ident: $($name:ident)*;)*) => {
        #[allow(dead_code, reason = "it is enough that this compiles")]
        fn assigned(library: &mut NvmlLib) {
            $($(library.$name = Ok(super::$module::$name);)*)*
        }

        /// Every implemented name stands in the list below.
        #[test]
        fn all_implemented_functions_are_compared() {
            let compared = [$($(stringify!($name)),*),*];
            let sources = [$((stringify!($module), include_str!(concat!(stringify!($module), ".rs")))),*];
            for (module, text) in sources {
                for rest in text.split("fn nvml").skip(1) {
                    let name: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let name = format!("nvml{name}");
                    assert!(compared.contains(&name.as_str()), "{module}: {name}");
                }
            }
        }
    };
}

/// The sizes that real clients were seen to use; the structs are the bindings' own.
#[test]
fn structs_have_the_sizes_of_nvmls_header() {
    use nvml_wrapper_sys::bindings as sys;

    macro_rules! sizes {
        ($($name:ident $size:literal)*) => {
            $(assert_eq!(size_of::<sys::$name>(), $size, stringify!($name));)*
        };
    }
    sizes! {
        nvmlPciInfo_t 68
        nvmlMemory_t 24
        nvmlMemory_v2_t 40
        nvmlDeviceAttributes_t 40
        nvmlGpuInstancePlacement_t 8
        nvmlGpuInstanceProfileInfo_t 48
        nvmlGpuInstanceProfileInfo_v2_t 152
        nvmlGpuInstanceProfileInfo_v3_t 152
        nvmlGpuInstanceInfo_t 24
        nvmlComputeInstanceProfileInfo_t 36
        nvmlComputeInstanceProfileInfo_v2_t 136
        nvmlComputeInstanceProfileInfo_v3_t 140
        nvmlComputeInstanceInfo_t 32
        nvmlEventData_t 32
        nvmlFieldValue_t 40
        nvmlProcessInfo_v1_t 16
        nvmlProcessInfo_v2_t 24
        nvmlProcessUtilizationSample_t 32
        nvmlGpuFabricInfo_t 28
        nvmlGpuFabricInfo_v2_t 36
        nvmlGpuFabricInfo_v3_t 40
        nvmlDeviceAddressingMode_t 8
        nvmlUUID_t 52
        nvmlSystemDriverBranchInfo_v1_t 84
        nvmlGpmSupport_t 8
        nvmlPlatformInfo_v2_t 44
        nvmlPdi_t 16
    }
}

same_signatures! {
    ecc:
        nvmlDeviceGetTotalEccErrors nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetRemappedRows
        nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetRetiredPages
        nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetRepairStatus;
    enumerate:
        nvmlDeviceGetCount_v2 nvmlDeviceGetCount nvmlDeviceGetHandleByIndex_v2
        nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByUUID nvmlDeviceGetHandleByUUIDV
        nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleBySerial;
    event_sets:
        nvmlEventSetCreate nvmlEventSetFree nvmlDeviceGetSupportedEventTypes
        nvmlDeviceRegisterEvents nvmlEventSetWait_v2 nvmlEventSetWait;
    fabric:
        nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetPlatformInfo
        nvmlDeviceGetNvLinkState nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvLinkRemotePciInfo_v2;
    fields:
        nvmlDeviceGetFieldValues;
    identity:
        nvmlDeviceGetIndex nvmlDeviceGetUUID nvmlDeviceGetName nvmlDeviceGetSerial
        nvmlDeviceGetBrand nvmlDeviceGetArchitecture nvmlDeviceGetCudaComputeCapability
        nvmlDeviceGetMinorNumber nvmlDeviceGetModuleId nvmlDeviceGetVbiosVersion
        nvmlDeviceGetBoardPartNumber nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfo_v2
        nvmlDeviceGetPciInfo nvmlDeviceGetPciInfoExt nvmlDeviceGetVirtualizationMode
        nvmlDeviceGetPdi;
    library:
        nvmlInit_v2 nvmlInit nvmlInitWithFlags nvmlShutdown nvmlErrorString
        nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion nvmlSystemGetCudaDriverVersion
        nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetDriverBranch nvmlSystemGetProcessName
        nvmlSystemGetConfComputeState nvmlUnitGetCount nvmlGetExcludedDeviceCount;
    memory:
        nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetBAR1MemoryInfo
        nvmlDeviceGetMemoryBusWidth nvmlDeviceGetAddressingMode nvmlDeviceGetNumaNodeId
        nvmlDeviceGetC2cModeInfoV;
    mig_compute:
        nvmlGpuInstanceGetComputeInstanceProfileInfo nvmlGpuInstanceGetComputeInstanceProfileInfoV
        nvmlGpuInstanceGetComputeInstanceRemainingCapacity
        nvmlGpuInstanceGetComputeInstancePossiblePlacements nvmlGpuInstanceCreateComputeInstance
        nvmlGpuInstanceCreateComputeInstanceWithPlacement nvmlComputeInstanceDestroy
        nvmlGpuInstanceGetComputeInstances nvmlGpuInstanceGetComputeInstanceById
        nvmlComputeInstanceGetInfo_v2 nvmlComputeInstanceGetInfo;
    mig_devices:
        nvmlDeviceIsMigDeviceHandle nvmlDeviceGetMaxMigDeviceCount
        nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetDeviceHandleFromMigDeviceHandle
        nvmlDeviceGetGpuInstanceId nvmlDeviceGetComputeInstanceId nvmlDeviceGetAttributes_v2
        nvmlDeviceGetAttributes;
    mig_instances:
        nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement
        nvmlGpuInstanceDestroy nvmlDeviceGetGpuInstances nvmlDeviceGetGpuInstanceById
        nvmlGpuInstanceGetInfo;
    mig_profiles:
        nvmlDeviceGetGpuInstanceProfileInfo nvmlDeviceGetGpuInstanceProfileInfoV
        nvmlDeviceGetGpuInstanceProfileInfoByIdV nvmlDeviceGetGpuInstancePossiblePlacements_v2
        nvmlDeviceGetGpuInstancePossiblePlacements nvmlDeviceGetGpuInstanceRemainingCapacity;
    modes:
        nvmlDeviceGetComputeMode nvmlDeviceSetComputeMode nvmlDeviceGetPersistenceMode
        nvmlDeviceSetPersistenceMode nvmlDeviceGetMigMode nvmlDeviceSetMigMode
        nvmlDeviceGetEccMode nvmlDeviceGetDefaultEccMode nvmlDeviceGetDisplayActive;
    processes:
        nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2
        nvmlDeviceGetMPSComputeRunningProcesses_v3 nvmlDeviceGetMPSComputeRunningProcesses_v2
        nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses_v2
        nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetProcessUtilization;
    telemetry:
        nvmlDeviceGetPowerUsage nvmlDeviceGetPowerManagementLimit
        nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetEnforcedPowerLimit
        nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetTemperature
        nvmlDeviceGetUtilizationRates nvmlDeviceGetPerformanceState
        nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetCurrPcieLinkGeneration
        nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetCurrPcieLinkWidth nvmlGpmQueryDeviceSupport;
}
