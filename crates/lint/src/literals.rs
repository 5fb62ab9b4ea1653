//! Quantities and versions written in a selector that are none: they compile, and fail on
//! every device.

use gpu_dra_cel::is_version;
use gpu_dra_model::Quantity;

/// A sentence for each.
pub(crate) fn problems(text: &str) -> Vec<String> {
    let quantities = arguments(text, "quantity(").into_iter().filter_map(|(argument, _)| {
        if argument.parse::<Quantity>().is_ok() {
            return None;
        }
        let meant = meant_quantity(argument);
        Some(format!("{argument:?} is no quantity: write quantity('{meant}')"))
    });
    let versions = arguments(text, "semver(").into_iter().filter_map(|(argument, rest)| {
        // With `true` behind it the text is brought into shape first.
        if is_version(argument) || rest.trim_start().starts_with(',') {
            return None;
        }
        Some(format!(
            "{argument:?} is no semantic version (three numbers without leading zeros): write \
             semver('{argument}', true)"
        ))
    });
    quantities.chain(versions).collect()
}

/// The literal arguments of a function, each with what follows it.
fn arguments<'t>(text: &'t str, function: &str) -> Vec<(&'t str, &'t str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(function) {
        rest = after;
        let part_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let inner = after.trim_start();
        let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            continue;
        };
        if before.ends_with(part_of_name) {
            continue;
        }
        if let Some((argument, after)) = inner.get(1..).and_then(|inner| inner.split_once(quote)) {
            found.push((argument, after));
        }
    }
    found
}

/// `80GB` and `80 gib` as a quantity.
fn meant_quantity(text: &str) -> String {
    let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let unit = text.get(digits.len()..).unwrap_or_default().trim().to_lowercase();
    let letter = unit.chars().next().filter(|c| "kmgtpe".contains(*c));
    match letter {
        Some(letter) if !digits.is_empty() => format!("{digits}{}i", letter.to_ascii_uppercase()),
        _ => "80Gi".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::problems;

    #[test]
    fn each_wrong_literal_has_a_sentence() {
        for (text, want) in [
            ("quantity('80GB')", "\"80GB\" is no quantity: write quantity('80Gi')"),
            ("quantity(\"40 gib\")", "\"40 gib\" is no quantity: write quantity('40Gi')"),
            (
                "semver('550.127.08')",
                "\"550.127.08\" is no semantic version (three numbers without leading zeros): \
                 write semver('550.127.08', true)",
            ),
        ] {
            assert_eq!(problems(text), [want]);
        }
        for text in [
            "quantity('80Gi')",
            "isQuantity('80GB')",
            "isSemver('x')",
            "semver('550.127.08', true)",
            "semver('9.0.0')",
            "quantity(device.driver)",
            "quantity('",
        ] {
            assert_eq!(problems(text), Vec::<String>::new(), "{text}");
        }
    }
}
