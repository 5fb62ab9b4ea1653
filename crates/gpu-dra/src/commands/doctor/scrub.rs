//! The last look at a report before it leaves: words that look like credentials are left out,
//! wherever they came from.

/// Shorter ones are names.
const LEAST: usize = 20;

/// The text without them.
pub(super) fn scrub(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if line.contains("-----BEGIN") {
            in_key = true;
            kept.push_str("[a key or certificate is left out]\n");
        }
        if !in_key {
            scrub_line(line, &mut kept);
        }
        in_key &= !line.contains("-----END");
    }
    kept
}

fn scrub_line(line: &str, kept: &mut String) {
    let mut after = "";
    for word in line.split_inclusive(|c: char| c.is_whitespace() || "\"'=,;".contains(c)) {
        let bare = word.trim_end_matches(|c: char| c.is_whitespace() || "\"'=,;".contains(c));
        let named = ["bearer", "token", "password", "token:", "password:"];
        let is_named = named.contains(&after.to_ascii_lowercase().as_str());
        if (is_named && bare.len() >= LEAST) || looks_like_a_token(bare) {
            kept.push_str("[left out]");
            kept.push_str(word.get(bare.len()..).unwrap_or_default());
        } else {
            kept.push_str(word);
        }
        if !bare.is_empty() {
            after = bare;
        }
    }
}

/// A JSON web token, or user and password in a URL.
fn looks_like_a_token(word: &str) -> bool {
    let jwt = word.starts_with("eyJ") && word.len() >= LEAST;
    let (_, rest) = word.split_once("://").unwrap_or(("", ""));
    let host = rest.split('/').next().unwrap_or_default();
    jwt || host.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_credential_is_left_out() {
        let jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.c2ln";
        for secret in [
            format!("Authorization: Bearer {jwt}\n"),
            format!("  token: {jwt}\n"),
            "token: abcdefghijklmnopqrstuvwx.yz\n".to_owned(),
            "password=\"correct-horse-battery-staple\"\n".to_owned(),
            "https://admin:hunter2@10.0.0.1/api\n".to_owned(),
            "a\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\nb\n".to_owned(),
        ] {
            let kept = scrub(&secret);
            assert!(kept.contains("left out"), "{kept}");
            for word in [jwt, "abcdefghijklmnopqrstuvwx", "correct-horse", "hunter2", "MIIEvQ"] {
                assert!(!kept.contains(word), "{kept}");
            }
        }
        let plain = "claim team-a/train (0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01): prepared, \"gpu-0\" = GPU-11111111-0000-0000-0000-000000000001\n\n  the token is missing; https://example.com/a@b\n";
        assert_eq!(scrub(plain), plain);
    }
}
