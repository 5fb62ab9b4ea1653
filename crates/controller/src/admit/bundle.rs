//! The `caBundle` of the webhook's configuration as a list of certificates, one for each
//! replica. Each adds its own and leaves the others'; the oldest go when there are too many.

/// Certificates that are kept: two replicas through three updates. Whose certificate went too
/// early sees it and adds it again.
const MOST: usize = 8;

const END: &str = "-----END CERTIFICATE-----";

/// The bundle with this certificate in it; None where it already is.
pub(crate) fn with(bundle: &[u8], pem: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bundle);
    let mut certificates: Vec<&str> = text
        .split_inclusive(END)
        .filter_map(|part| part.find("-----BEGIN CERTIFICATE-----").and_then(|at| part.get(at..)))
        .filter(|part| part.ends_with(END))
        .collect();
    let own = pem.trim();
    if certificates.iter().any(|known| lines(known).eq(lines(own))) {
        return None;
    }
    certificates.push(own);
    let too_many = certificates.len().saturating_sub(MOST);
    let kept = certificates.into_iter().skip(too_many);
    Some(kept.flat_map(|certificate| [certificate, "\n"]).collect::<String>().into_bytes())
}

/// Lines without what editors change.
fn lines(pem: &str) -> impl Iterator<Item = &str> {
    pem.lines().map(str::trim).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(n: usize) -> String {
        format!("-----BEGIN CERTIFICATE-----\nAAAA{n}\n{END}\n")
    }

    #[test]
    fn each_adds_its_own_and_the_oldest_go() {
        let mut bundle = b"\n".to_vec();
        for n in 0..10 {
            bundle = with(&bundle, &pem(n)).unwrap();
            assert_eq!(with(&bundle, &pem(n)), None, "once is enough");
        }
        let text = String::from_utf8(bundle.clone()).unwrap();
        assert_eq!(text, (2..10).map(pem).collect::<String>());
        assert_eq!(with(text.replace('\n', "\r\n").as_bytes(), &pem(5)), None);
        let again = String::from_utf8(with(&bundle, &pem(0)).unwrap()).unwrap();
        assert!(again.ends_with(&pem(0)) && !again.contains(&pem(2)));
    }

    #[test]
    fn what_is_no_certificate_is_left_out() {
        for junk in
            [&b"\xff\xfe"[..], b"-----BEGIN CERTIFICATE-----\nhalf", b"text", END.as_bytes()]
        {
            assert_eq!(with(junk, &pem(1)), Some(pem(1).into_bytes()));
        }
    }
}
