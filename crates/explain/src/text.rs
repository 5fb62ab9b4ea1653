//! A report for people: a verdict, advice, near misses, then the nodes, each line once. How
//! it is coloured is the caller's.

use std::fmt::Write as _;

use crate::causes::sentence;
use crate::report::{CauseKind, NodeGroup, NodeOutcome, Removed, Report, RequestOnNode, Verdict};
use crate::verdict::of_class;
use crate::words;

/// What a piece of text is, for colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// All is well.
    Good,
    /// It isn't.
    Bad,
    /// What to do.
    Hint,
    /// Names and numbers.
    Strong,
    /// Details.
    Dim,
}

/// The report without colours.
#[must_use]
pub fn plain(report: &Report) -> String {
    render(report, &|_, text| text.to_owned())
}

/// The report, each styled piece as `paint` makes it.
#[must_use]
pub fn render(report: &Report, paint: &dyn Fn(Style, &str) -> String) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let (style, word) = match report.verdict {
        Verdict::Fits => (Style::Good, "fits"),
        Verdict::Allocated => (Style::Good, "allocated"),
        Verdict::NoDevices => (Style::Good, "no devices"),
        Verdict::DoesNotFit => (Style::Bad, "does not fit"),
        Verdict::Stopped => (Style::Bad, "stopped"),
        Verdict::Rejected => (Style::Bad, "refused"),
        Verdict::NotDecided => (Style::Bad, "not decided"),
        Verdict::Missing => (Style::Bad, "waits"),
    };
    line(format!("{}: {}", paint(style, word), report.sentence));
    for advice in &report.advice {
        line(format!("  {} {}: {}", paint(Style::Hint, "!"), advice.about, advice.problem));
        if let Some(fix) = &advice.fix {
            line(format!("      {} {fix}", paint(Style::Hint, "->")));
        }
    }
    for nearest in &report.nearest {
        let nodes = words::count(nearest.nodes, "node");
        line(format!(
            "  {} request {}: {} {}",
            paint(Style::Hint, "~"),
            nearest.request,
            nearest.text,
            paint(Style::Dim, &format!("({nodes})"))
        ));
        if let Some(fix) = &nearest.fix {
            line(format!("      {} {fix}", paint(Style::Hint, "->")));
        }
    }
    for group in &report.nodes {
        for shown in node_group(group, paint) {
            line(shown);
        }
    }
    text
}

fn node_group(group: &NodeGroup, paint: &dyn Fn(Style, &str) -> String) -> Vec<String> {
    let style = match group.outcome {
        NodeOutcome::Fits => Style::Good,
        NodeOutcome::Error | NodeOutcome::NotDecided | NodeOutcome::DoesNotFit => Style::Bad,
        NodeOutcome::LeftOut => Style::Dim,
    };
    let mut names = group.names.join(", ");
    if group.count > group.names.len() {
        let _infallible = write!(names, " and {} more", group.count - group.names.len());
    }
    let count = words::count(group.count, "node");
    let mut lines =
        vec![format!("  {} {}: {}", paint(style, &count), paint(Style::Strong, &names), group.why)];
    for request in &group.requests {
        lines.extend(request_on_node(request, paint));
    }
    lines
}

fn request_on_node(request: &RequestOnNode, paint: &dyn Fn(Style, &str) -> String) -> Vec<String> {
    if request.devices == 0 {
        return Vec::new();
    }
    let wanted = request.wanted.map_or_else(|| "all".to_owned(), |wanted| wanted.to_string());
    let mut lines = vec![format!(
        "      {} wants {wanted} of class {}: {} here, {} match, {} can be had",
        paint(Style::Strong, &format!("{} {}", request.claim, request.request)),
        request.class,
        words::count(request.devices, "device"),
        request.selected,
        request.usable
    )];
    // Which devices a class leaves out is told where it leaves out all.
    let is_told = |removed: &Removed| {
        removed.cause.kind != CauseKind::Class || removed.by_value && of_class(request) == 0
    };
    let others = request.removed.iter().filter(|removed| !is_told(removed));
    let others: usize = others.map(|removed| removed.count).sum();
    for removed in request.removed.iter().filter(|removed| is_told(removed)) {
        let names = if removed.count > removed.devices.len() {
            format!("{} ...", removed.devices.join(", "))
        } else {
            removed.devices.join(", ")
        };
        let mut shown = format!(
            "        - {} {} {}: {}",
            removed.count,
            removed.what,
            paint(Style::Dim, &format!("({names})")),
            sentence(&removed.cause)
        );
        for cause in &removed.also {
            let _infallible = write!(shown, "; also {}", sentence(cause));
        }
        lines.push(shown);
    }
    if others > 0 {
        let of_other = words::count(others, "device");
        lines.push(paint(Style::Dim, &format!("        - {of_other} not of this class")));
    }
    lines
}
