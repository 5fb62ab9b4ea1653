//! Documentation that is made from the code must be the code's.

use gpu_dra_slices::attributes;

#[test]
fn the_tables_of_attributes_are_the_ones_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/claims.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut right = text.clone();
    for (function, table) in
        [("markdown()", attributes::markdown()), ("mig_markdown()", attributes::mig_markdown())]
    {
        let mark = format!("attributes::{function} -->\n");
        let (before, rest) = right.split_once(&mark).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        right = format!("{before}{mark}\n{}\n\n<!-- end -->{after}", table.trim_end());
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    } else {
        assert!(text == right, "docs/claims.md is out of date; run this test with UPDATE_DOCS=1");
    }
}
