//! Documentation that is made from the code must be the code's.

#[test]
fn the_table_of_attributes_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/claims.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once("markdown() -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let table = gpu_dra_slices::attributes::markdown();
    let right = format!("{before}markdown() -->\n\n{}\n\n<!-- end -->{after}", table.trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    }
    assert!(text == right, "docs/claims.md is out of date; run this test with UPDATE_DOCS=1");
}
