//! The written form of the fields of a GpuClass: what can't name anything is told before a
//! class is made of it. Whether a name exists anywhere isn't asked here.

use gpu_dra_model::{shown, version};

/// The API's limit on a string attribute, in bytes: a longer name can't be published.
const MAX_NAME: usize = 64;
/// How much of a text is shown in a sentence about it, in characters.
const MOST: usize = 60;

/// What is wrong with a product's name or a part of one.
pub(crate) fn product_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("is empty, which every product contains: remove it".to_owned()),
        length if length > MAX_NAME => {
            Err(format!("has {length} bytes: product names have at most {MAX_NAME}"))
        }
        _ => Ok(()),
    }
}

/// What is wrong with a MIG profile's name: NVML's are like `1g.10gb` and `1g.10gb+me`.
pub(crate) fn profile(name: &str) -> Result<(), String> {
    let well_formed = |name: &str| {
        let (compute, memory) = name.split_once("g.")?;
        let (memory, suffix) = memory.split_once("gb")?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let suffix_is_fine = suffix.is_empty()
            || suffix.strip_prefix(['+', '-']).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            });
        (number(compute) && number(memory) && suffix_is_fine).then_some(())
    };
    if well_formed(name).is_some() {
        return Ok(());
    }
    let lower = name.to_lowercase();
    let lower = lower.strip_prefix("mig-").unwrap_or(&lower);
    Err(match well_formed(lower) {
        Some(()) if lower.len() <= MOST => {
            format!("{name:?} is no MIG profile: did you mean {lower}?")
        }
        _ => format!("{:?} is no MIG profile: they are like 1g.10gb", shown(name, MOST)),
    })
}

/// The compute capability as devices publish it.
pub(crate) fn compute_capability(text: &str) -> Result<String, String> {
    let is_dotted = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let version = version::normalised(text).filter(|_| is_dotted);
    version.ok_or_else(|| {
        format!("{:?} is no compute capability: they are like 9.0", shown(text, MOST))
    })
}

/// What is wrong with the name of an extended resource (kubernetes
/// `pkg/apis/core/helper.IsExtendedResourceName`).
pub(crate) fn extended_resource(name: &str) -> Result<(), String> {
    let given = shown(name, MOST);
    let Some((domain, rest)) = name.split_once('/') else {
        return Err(format!("{given:?} has no domain: write it like nvidia.com/h100"));
    };
    if domain.contains("kubernetes.io") {
        return Err(format!("{given:?}: names under kubernetes.io belong to Kubernetes"));
    }
    let label = |text: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(text.bytes().next())
            && edge(text.bytes().last())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    // "requests." in front of it must still be a domain, for quotas.
    if domain.len() + "requests.".len() > 253
        || domain.starts_with("requests.")
        || !domain.split('.').all(label)
    {
        return Err(format!("{given:?}: what comes before / must be a DNS domain in lower case"));
    }
    let word = |b: u8| b.is_ascii_alphanumeric();
    let is_name = rest.len() <= 63
        && rest.bytes().next().is_some_and(word)
        && rest.bytes().last().is_some_and(word)
        && rest.bytes().all(|b| word(b) || matches!(b, b'-' | b'_' | b'.'));
    if is_name {
        Ok(())
    } else {
        Err(format!("{given:?}: after / are at most 63 letters, digits, '-', '_' and '.'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles() {
        for good in
            ["1g.10gb", "7g.141gb", "1g.10gb+me", "1g.5gb-me", "1g.24gb+gfx", "1g.5gb+me.all"]
        {
            assert_eq!(profile(good), Ok(()), "{good}");
        }
        for (bad, says) in [
            ("", "they are like 1g.10gb"),
            ("1G.10GB", "did you mean 1g.10gb?"),
            ("mig-1g.10gb", "did you mean 1g.10gb?"),
            ("10gb", "they are like"),
            ("1g10gb", "they are like"),
            ("1g.10gb+", "they are like"),
            ("1g.10", "they are like"),
            (&"é".repeat(500), "…"),
            (&"\u{b}".repeat(60), "they are like"),
            (&format!("MIG-1g.5gb+{}", "G".repeat(100)), "they are like"),
        ] {
            let reason = profile(bad).unwrap_err();
            assert!(reason.contains(says) && reason.len() < 200, "{bad}: {reason}");
        }
    }

    #[test]
    fn extended_resources() {
        for good in ["nvidia.com/h100", "nvidia.com/mig-1g.12gb", "a/b_C.d"] {
            assert_eq!(extended_resource(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "h100",
            "nvidia.com/",
            "/x",
            "Nvidia.com/x",
            "kubernetes.io/x",
            "x.kubernetes.io/y",
            "requests.nvidia.com/x",
            "nvidia.com/a/b",
            "nvidia.com/-a",
            "a..b/c",
            "a.com/é",
            &format!("a.com/{}", "x".repeat(64)),
            &format!("{}/x", "a.".repeat(130)),
        ] {
            let reason = extended_resource(bad).unwrap_err();
            assert!(reason.len() < 200, "{reason}");
        }
    }

    #[test]
    fn compute_capabilities() {
        assert_eq!(compute_capability("9.0"), Ok("9.0.0".to_owned()));
        assert_eq!(compute_capability("12"), Ok("12.0.0".to_owned()));
        for bad in ["", "sm_90", "v9", "9.0a", ".", "99999999999999999999.0"] {
            assert!(compute_capability(bad).is_err(), "{bad}");
        }
    }
}
