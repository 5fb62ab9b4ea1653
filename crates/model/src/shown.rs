//! How text from outside is shown in a sentence: short, and harmless in a log.

/// At most so many characters, then `…`. What is not plain ASCII is shown as `?`, so that a
/// sentence keeps its length however it is printed, and carries no control characters.
#[must_use]
pub fn shown(text: &str, length: usize) -> String {
    let plain = |c: char| (c.is_ascii_graphic() || c == ' ') && c != '"' && c != '\\';
    let mut shown: String =
        text.chars().take(length).map(|c| if plain(c) { c } else { '?' }).collect();
    if text.chars().nth(length).is_some() {
        shown.push('…');
    }
    shown
}
