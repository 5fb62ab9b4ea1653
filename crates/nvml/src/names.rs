//! Architectures and brands by NVML's numbers, spelled as the incumbent publishes them:
//! selectors in public manifests compare with these words.

/// The architecture by `nvmlDeviceArchitecture_t`; None for a number newer than this table.
#[must_use]
pub fn architecture_name(number: u32) -> Option<&'static str> {
    Some(match number {
        2 => "Kepler",
        3 => "Maxwell",
        4 => "Pascal",
        5 => "Volta",
        6 => "Turing",
        7 => "Ampere",
        8 => "Ada Lovelace",
        9 => "Hopper",
        10 => "Blackwell",
        11 => "Orin",
        13 => "Rubin",
        // NVML itself says that it doesn't know.
        0xFFFF_FFFF => "Unknown",
        _ => return None,
    })
}

/// The brand by `nvmlBrandType_t`; None for a number newer than this table.
#[must_use]
pub fn brand_name(number: u32) -> Option<&'static str> {
    Some(match number {
        0 => "Unknown",
        1 => "Quadro",
        2 => "Tesla",
        3 => "NVS",
        4 => "Grid",
        5 => "GeForce",
        6 => "Titan",
        7 => "NvidiaVApps",
        8 => "NvidiaVPC",
        9 => "NvidiaVCS",
        10 => "NvidiaVWS",
        11 => "NvidiaCloudGaming",
        12 => "QuadroRTX",
        13 => "NvidiaRTX",
        14 => "Nvidia",
        15 => "GeForceRTX",
        16 => "TitanRTX",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        for (number, name) in [
            (sys::NVML_DEVICE_ARCH_PASCAL, "Pascal"),
            (sys::NVML_DEVICE_ARCH_ADA, "Ada Lovelace"),
            (sys::NVML_DEVICE_ARCH_HOPPER, "Hopper"),
            (sys::NVML_DEVICE_ARCH_BLACKWELL, "Blackwell"),
            (sys::NVML_DEVICE_ARCH_UNKNOWN, "Unknown"),
        ] {
            assert_eq!(architecture_name(number), Some(name));
        }
        for (number, name) in [
            (sys::nvmlBrandType_enum_NVML_BRAND_TESLA, "Tesla"),
            (sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX, "NvidiaRTX"),
            (sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA, "Nvidia"),
            (sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE_RTX, "GeForceRTX"),
            (sys::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX, "TitanRTX"),
        ] {
            assert_eq!(brand_name(number), Some(name));
        }
    }

    #[test]
    fn what_is_newer_than_the_table_has_no_name() {
        assert_eq!(architecture_name(13), Some("Rubin"));
        assert_eq!(architecture_name(14), None);
        assert_eq!(brand_name(17), None);
    }
}
