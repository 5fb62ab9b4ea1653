//! A table in the real program's frame.

/// Prints headings and rows between rules of `WIDTH`.
pub(super) fn print<const WIDTH: usize>(headings: &[&str], rows: &[String]) {
    let rule = "-".repeat(WIDTH);
    println!("+{rule}+");
    for heading in headings {
        println!("|{heading:<WIDTH$}|");
    }
    println!("|{}|", "=".repeat(WIDTH));
    for row in rows {
        println!("|{row:<WIDTH$}|");
    }
    println!("+{rule}+");
}
