//! Versions as the API server compares them (blang/semver): strict SemVer 2.0.0, build
//! metadata never counts, neither for order nor for equality.

use std::cmp::Ordering;

/// A semantic version.
#[derive(Debug, Clone)]
pub(crate) struct Semver(semver::Version);

impl Semver {
    /// Strict: three numbers without leading zeros.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        semver::Version::parse(text).ok().map(Self)
    }

    /// `semver(text, true)`: without a leading `v` and leading zeros, filled up to three
    /// numbers. A short version may have no prerelease or build.
    pub(crate) fn parse_normalised(text: &str) -> Option<Self> {
        let mut parts: Vec<String> =
            text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return None;
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }

    pub(crate) fn major(&self) -> u64 {
        self.0.major
    }

    pub(crate) fn minor(&self) -> u64 {
        self.0.minor
    }

    pub(crate) fn patch(&self) -> u64 {
        self.0.patch
    }
}

impl std::fmt::Display for Semver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalising_follows_the_server() {
        for (text, want) in [
            ("v1.2", Some((1, 2, 0))),
            ("570.124.06", Some((570, 124, 6))),
            ("13", Some((13, 0, 0))),
            ("01.02.03-rc1", Some((1, 2, 3))),
            ("1.0.00", Some((1, 0, 0))),
            ("1-rc", None),
            ("", None),
            (" 1.2.3", None),
            ("1.2.3.4", None),
        ] {
            let version = Semver::parse_normalised(text);
            assert_eq!(version.map(|v| (v.major(), v.minor(), v.patch())), want, "{text}");
        }
        assert!(Semver::parse("550.127.08").is_none());
    }

    #[test]
    fn build_metadata_does_not_count() {
        let parse = |text| Semver::parse(text).unwrap();
        assert_eq!(parse("1.2.3+a").compare(&parse("1.2.3+b")), Ordering::Equal);
        assert_eq!(parse("1.2.3-rc1").compare(&parse("1.2.3")), Ordering::Less);
    }
}
