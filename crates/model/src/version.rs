//! Versions as the API server takes them. Drivers say `570.124.06`, which no SemVer is:
//! one such value makes the server refuse the whole slice, so it is normalised here and
//! nowhere else.

/// Normalises a dotted version to strict SemVer 2.0.0 with three numbers: leading zeros
/// go, missing numbers become 0, numbers after the third are dropped.
/// `570.124.06` gives `570.124.6`, `13.0` gives `13.0.0`.
///
/// None where the text doesn't begin with a number, or a number doesn't fit 64 bits.
#[must_use]
pub fn normalised(text: &str) -> Option<String> {
    let mut numbers = [0_u64; 3];
    let mut parts = text.trim().trim_start_matches('v').split('.');
    for (at, number) in numbers.iter_mut().enumerate() {
        let Some(part) = parts.next() else { break };
        let digits = part.find(|c: char| !c.is_ascii_digit()).map_or(part, |end| &part[..end]);
        match digits.parse() {
            Ok(value) => *number = value,
            Err(_) if at == 0 || !digits.is_empty() => return None,
            Err(_) => break,
        }
        if digits.len() != part.len() {
            break;
        }
    }
    let [major, minor, patch] = numbers;
    Some(format!("{major}.{minor}.{patch}"))
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn driver_versions_become_semver() {
        for (text, want) in [
            ("570.124.06", Some("570.124.6")),
            ("550.163.01", Some("550.163.1")),
            ("580.142", Some("580.142.0")),
            ("13", Some("13.0.0")),
            ("535.230.02.1", Some("535.230.2")),
            ("560.35-beta", Some("560.35.0")),
            ("", None),
            ("unknown", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(normalised(text).as_deref(), want, "{text}");
        }
    }
}
