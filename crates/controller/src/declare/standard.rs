//! The standard DeviceClasses, exactly as deploy/deviceclasses.yaml has them for those who
//! run no controller: one source.

use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::DeviceClass;

use super::origin::Origin;

const MANIFEST: &str = include_str!("../../../../deploy/deviceclasses.yaml");
/// Their expressions name it.
const DRIVER: &str = "gpu.nvidia.com";

/// The standard classes with our labels. None for a driver of another name: the expressions
/// and the classes' names are those of `gpu.nvidia.com`.
///
/// # Errors
/// The manifest that this was built with is no list of DeviceClasses; a test excludes it.
pub fn standard_classes(driver: &DriverName) -> Result<Vec<DeviceClass>, serde_saphyr::Error> {
    if driver.as_str() != DRIVER {
        return Ok(Vec::new());
    }
    let mut classes: Vec<DeviceClass> = serde_saphyr::from_multiple(MANIFEST)?;
    for class in &mut classes {
        class.metadata.labels = Some(Origin::Standard.labels());
    }
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use gpu_dra_cel::{DeviceView, Selector};

    use super::*;

    #[test]
    fn the_four_classes_stop_no_pod() {
        let classes = standard_classes(&DriverName::new(DRIVER).unwrap()).unwrap();
        let names: Vec<_> = classes.iter().map(|c| c.metadata.name.clone().unwrap()).collect();
        assert_eq!(
            names,
            ["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "monitor.gpu.nvidia.com"]
        );
        assert_eq!(crate::declare::extended_resource(&classes[0]), Some("nvidia.com/gpu"));
        for class in classes {
            for selector in class.spec.unwrap().selectors.unwrap() {
                let selector = Selector::compile(&selector.cel.unwrap().expression).unwrap();
                for driver in [DRIVER, "net.example.com"] {
                    assert_eq!(selector.matches(&DeviceView::new(driver, false)), Ok(false));
                }
            }
        }
        assert!(standard_classes(&DriverName::new("gpu.example.com").unwrap()).unwrap().is_empty());
    }
}
