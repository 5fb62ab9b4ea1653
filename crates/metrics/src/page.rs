//! A page of metrics in Prometheus' text format 0.0.4, which every collector reads. All names
//! begin with `gpu_dra_`.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The page's `Content-Type`.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// A page that has nothing yet but `gpu_dra_build_info`.
#[must_use]
pub fn page(component: &'static str) -> Registry {
    let mut registry = Registry::with_prefix("gpu_dra");
    let labels = [("component", component), ("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "The program that answers", Info::new(labels.to_vec()));
    registry
}

/// The page's text as of now.
///
/// # Errors
/// None that a text can cause; what a collector says.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_text::encode(&mut text, registry)?;
    Ok(text)
}

/// Gauges that are read at each scrape, family by family.
#[derive(Debug)]
pub struct Gauges<'a>(pub DescriptorEncoder<'a>);

impl Gauges<'_> {
    /// One gauge without labels.
    ///
    /// # Errors
    /// When the page takes no more text.
    pub fn one(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        let mut gauge = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&value)
    }

    /// One family: label sets with values. It is there with its help even where there are none.
    ///
    /// # Errors
    /// When the page takes no more text.
    pub fn all<'v, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, &'v str); N], V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[derive(Debug)]
    struct Two;

    impl Collector for Two {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut gauges = Gauges(encoder);
            gauges.one("ready", "Whether it is.", 1_u64)?;
            gauges.all("devices", "Devices.", [([("type", "a\"b")], 2_u64)])
        }
    }

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let mut registry = page("node");
        let writes: Counter = Counter::default();
        registry.register("writes", "Writes", writes.clone());
        registry.register_collector(Box::new(Two));
        writes.inc();
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "# HELP gpu_dra_build_info The program that answers.\n# TYPE gpu_dra_build_info gauge\n\
             gpu_dra_build_info{{component=\"node\",version=\"{version}\"}} 1\n\
             # HELP gpu_dra_writes_total Writes.\n# TYPE gpu_dra_writes_total counter\n\
             gpu_dra_writes_total 1\n\
             # HELP gpu_dra_ready Whether it is.\n# TYPE gpu_dra_ready gauge\ngpu_dra_ready 1\n\
             # HELP gpu_dra_devices Devices.\n# TYPE gpu_dra_devices gauge\n\
             gpu_dra_devices{{type=\"a\\\"b\"}} 2\n"
        );
        assert_eq!(text(&registry).unwrap(), expected);
    }
}
