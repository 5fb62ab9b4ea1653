//! The CEL text of a class. Each part reads with a default and compares with that, so that
//! neither another driver's device nor one without the attribute is an error: an error in a
//! selector stops the pod on all nodes.

use gpu_dra_model::{DriverName, Quantity};

use super::gpuclass::{DeviceType, Model};

/// An expression that grows by `&&`.
pub(crate) struct Expression {
    driver: String,
    text: String,
}

impl Expression {
    /// Devices of this type of the driver.
    pub(crate) fn new(driver: &DriverName, device_type: DeviceType) -> Self {
        let driver = quoted(driver.as_str());
        let mut expression = Self { text: format!("device.driver == {driver}"), driver };
        let is_type = format!("{} == '{}'", expression.string("type"), device_type.as_str());
        expression.and(&is_type);
        expression
    }

    /// A string attribute, empty where it isn't there.
    fn string(&self, name: &str) -> String {
        format!("device.attributes[{}].?{name}.orValue('')", self.driver)
    }

    fn and(&mut self, term: &str) {
        self.text.push_str(" && ");
        self.text.push_str(term);
    }

    /// One of the products.
    pub(crate) fn model(&mut self, model: &Model) {
        let product = self.string("productName");
        let mut either = Vec::new();
        match &*model.names {
            [] => {}
            [name] => either.push(format!("{product} == {}", quoted(name))),
            names => {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                either.push(format!("{product} in [{}]", names.join(", ")));
            }
        }
        // The API server takes a text from orValue for one of any length, on which contains()
        // costs more than is allowed: here has() guards.
        let plain = format!("device.attributes[{}].productName", self.driver);
        let contains =
            |part: &String| format!("has({plain}) && {plain}.contains({})", quoted(part));
        either.extend(model.contains.iter().map(contains));
        match &*either {
            [] => {}
            [term] => self.and(term),
            terms => self.and(&format!("({})", terms.join(" || "))),
        }
    }

    /// At least so much memory.
    pub(crate) fn memory_at_least(&mut self, least: &Quantity) {
        let memory = format!("device.capacity[{}].?memory.orValue(quantity('0'))", self.driver);
        self.and(&format!("{memory}.compareTo(quantity('{least}')) >= 0"));
    }

    /// This MIG profile.
    pub(crate) fn profile(&mut self, profile: &str) {
        let term = format!("{} == {}", self.string("profile"), quoted(profile));
        self.and(&term);
    }

    /// At least this compute capability, a full version.
    pub(crate) fn compute_capability_at_least(&mut self, least: &str) {
        let attribute = format!("device.attributes[{}].?cudaComputeCapability", self.driver);
        self.and(&format!(
            "{attribute}.orValue(semver('0.0.0')).compareTo(semver('{least}')) >= 0"
        ));
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// A CEL string literal; whatever the text is, it stays a literal.
fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => literal.extend(['\\', c]),
            c if c.is_control() => literal.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use gpu_dra_cel::{Attribute, DeviceView, Selector};

    use super::*;

    /// Names that would end the literal, or the expression.
    #[test]
    fn any_name_stays_a_literal() {
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        for name in [
            "it's",
            "a\\",
            "' || true || '",
            "\\' || true || '",
            "tab\there\nthere",
            "\u{7f}\u{0}",
            "größer",
            "a\u{2028}b",
            "{}",
        ] {
            let mut expression = Expression::new(&driver, DeviceType::Gpu);
            expression.model(&Model { names: vec![name.to_owned()], contains: vec![] });
            let text = expression.into_text();
            let selector = Selector::compile(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let device = |product: &str| {
                let mut view = DeviceView::new("gpu.nvidia.com", false);
                view.add_attribute("type", Attribute::String("gpu".to_owned()));
                view.add_attribute("productName", Attribute::String(product.to_owned()));
                view
            };
            assert_eq!(selector.matches(&device(name)), Ok(true), "{text}");
            assert_eq!(selector.matches(&device("other")), Ok(false), "{text}");
        }
    }
}
