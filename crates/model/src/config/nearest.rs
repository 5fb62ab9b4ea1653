//! The nearest right name for a wrong one.

/// The name of `known` that was most likely meant: the same but for case, one that begins
/// with the other, or one with few letters changed. None if nothing is near.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(64).flat_map(char::to_lowercase).collect();
    let allowed = (name.len() / 3).max(1);
    known
        .iter()
        .map(|candidate| {
            let other: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
            let prefix = name.len() >= 3 && (other.starts_with(&name) || name.starts_with(&other));
            (if prefix { 1 } else { edits(&name, &other) }, *candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(b) {
            let changed = diagonal + usize::from(left != right);
            diagonal = *cell;
            *cell = changed.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["strategy", "timeSlicingConfig", "mpsConfig"];
        for (name, want) in [
            ("timeSlicing", Some("timeSlicingConfig")),
            ("timeslicingconfig", Some("timeSlicingConfig")),
            ("stratgy", Some("strategy")),
            ("mpsconfig", Some("mpsConfig")),
            ("mps", Some("mpsConfig")),
            ("replicas", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), want, "{name}");
        }
        assert_eq!(edits(&['a', 'b', 'c'], &['a', 'x', 'c', 'd']), 2);
    }
}
