"""Asks a node for everything that gets published, through NVIDIA's own Python bindings.

Prints one JSON document. What a GPU doesn't support is null; any other error ends the run.
"""

import ctypes
import json

import pynvml as nvml


def supported(ask, *args):
    try:
        return ask(*args)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise


def fields(struct, *names):
    return None if struct is None else {name: getattr(struct, name) for name in names}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def fabric(device):
    info = nvml.c_nvmlGpuFabricInfo_v3_t()
    if supported(nvml.nvmlDeviceGetGpuFabricInfoV, device, ctypes.byref(info)) is None:
        return None
    # A bytes field of ctypes would end at the first zero.
    place = type(info).clusterUuid.offset
    cluster = bytes(ctypes.string_at(ctypes.addressof(info) + place, 16)).hex()
    return {"state": info.state, "clique": info.cliqueId, "cluster": cluster}


def placements(device, profile):
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, None, ctypes.byref(count))
    room = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, room, ctypes.byref(count))
    return [[place.start, place.size] for place in room]


def profiles(device):
    found = {}
    for index in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = supported(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, index)
        if info is None:
            continue
        found[info.id] = fields(
            info,
            "sliceCount",
            "instanceCount",
            "multiprocessorCount",
            "copyEngineCount",
            "decoderCount",
            "encoderCount",
            "jpegCount",
            "ofaCount",
            "memorySizeMB",
        )
        found[info.id]["name"] = text(info.name)
        found[info.id]["placements"] = placements(device, info.id)
    return found


def gpu(index):
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    pci = nvml.nvmlDeviceGetPciInfo(device)
    recovery = nvml.nvmlDeviceGetFieldValues(device, [230])[0]
    return {
        "index": nvml.nvmlDeviceGetIndex(device),
        "uuid": nvml.nvmlDeviceGetUUID(device),
        "name": nvml.nvmlDeviceGetName(device),
        "serial": nvml.nvmlDeviceGetSerial(device),
        "brand": nvml.nvmlDeviceGetBrand(device),
        "architecture": nvml.nvmlDeviceGetArchitecture(device),
        "computeCapability": list(nvml.nvmlDeviceGetCudaComputeCapability(device)),
        "minor": nvml.nvmlDeviceGetMinorNumber(device),
        "moduleId": supported(nvml.nvmlDeviceGetModuleId, device),
        "busId": text(pci.busId),
        "pciDeviceId": pci.pciDeviceId,
        "pciSubSystemId": pci.pciSubSystemId,
        "memory": fields(
            supported(nvml.nvmlDeviceGetMemoryInfo, device), "total", "free", "used"
        ),
        "memoryV2": fields(
            supported(nvml.nvmlDeviceGetMemoryInfo, device, nvml.nvmlMemory_v2),
            "total",
            "reserved",
            "free",
            "used",
        ),
        "bar1": fields(supported(nvml.nvmlDeviceGetBAR1MemoryInfo, device), "bar1Total"),
        "memoryBusWidth": supported(nvml.nvmlDeviceGetMemoryBusWidth, device),
        "addressingMode": supported(nvml.nvmlDeviceGetAddressingMode, device),
        "numaNode": supported(nvml.nvmlDeviceGetNumaNodeId, device),
        "virtualization": nvml.nvmlDeviceGetVirtualizationMode(device),
        "fabric": fabric(device),
        "ecc": supported(nvml.nvmlDeviceGetEccMode, device),
        "eccErrors": supported(nvml.nvmlDeviceGetTotalEccErrors, device, 1, 0),
        "remappedRows": supported(nvml.nvmlDeviceGetRemappedRows, device),
        "recoveryAction": recovery.value.uiVal if recovery.nvmlReturn == 0 else None,
        "processes": len(nvml.nvmlDeviceGetComputeRunningProcesses(device)),
        "computeMode": nvml.nvmlDeviceGetComputeMode(device),
        "migMode": supported(nvml.nvmlDeviceGetMigMode, device),
        "maxMigDevices": nvml.nvmlDeviceGetMaxMigDeviceCount(device),
        "profiles": profiles(device),
        "uuidGivesIndex": nvml.nvmlDeviceGetIndex(
            nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(device))
        ),
        "busIdGivesIndex": nvml.nvmlDeviceGetIndex(
            nvml.nvmlDeviceGetHandleByPciBusId(text(pci.busId))
        ),
    }


def mig_life(index):
    """Creates a MIG device, describes it and takes it away again."""
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    instance = nvml.nvmlDeviceCreateGpuInstance(device, 9)
    info = nvml.nvmlGpuInstanceGetInfo(instance)
    profile = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 2, 0)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile.id)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
    attributes = nvml.nvmlDeviceGetAttributes(mig)
    life = {
        "id": info.id,
        "placement": [info.placement.start, info.placement.size],
        "name": nvml.nvmlDeviceGetName(mig),
        "uuid": nvml.nvmlDeviceGetUUID(mig),
        "multiprocessors": attributes.multiprocessorCount,
        "memory": nvml.nvmlDeviceGetMemoryInfo(mig).total,
    }
    nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    return life


nvml.nvmlInit()
count = nvml.nvmlDeviceGetCount()
node = {
    "driver": text(nvml.nvmlSystemGetDriverVersion()),
    "nvml": text(nvml.nvmlSystemGetNVMLVersion()),
    "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
    "gpus": [gpu(index) for index in range(count)],
    "migLife": [
        mig_life(index)
        for index in range(count)
        if (supported(nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetHandleByIndex(index)) or [0])[0]
    ],
}
nvml.nvmlShutdown()
print(json.dumps(node))
