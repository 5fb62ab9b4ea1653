//! The table of selectors with what is expected of each. It is read here, not judged.

use anyhow::{Context as _, Result, bail, ensure};

use crate::Verdict;

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The selector.
    pub expression: String,
    /// What it comes to on each device, in their order; None: the API server refuses it.
    pub on_devices: Option<Vec<Verdict>>,
    /// The minor versions of Kubernetes for which that holds, first and last.
    pub versions: (u32, u32),
}

/// Reads the table: tab-separated lines of expression, `refused` or a cost, results (`T F E E`),
/// what is said, and, where it doesn't hold for all versions, `1.36-`, `-1.36` or `1.36-1.37`.
///
/// # Errors
/// A line that is not so.
pub fn read(text: &str) -> Result<Vec<Row>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| row(line).with_context(|| format!("the table's line {line:?}")))
        .collect()
}

fn row(line: &str) -> Result<Row> {
    let columns: Vec<&str> = line.split('\t').collect();
    let (expression, verdict, results, versions) = match columns[..] {
        [expression, verdict, results, _] => (expression, verdict, results, None),
        [expression, verdict, results, _, versions] => {
            (expression, verdict, results, Some(versions))
        }
        _ => bail!("want four columns or five"),
    };
    let on_devices = match verdict {
        "refused" => None,
        cost => {
            ensure!(cost.parse::<u64>().is_ok(), "want `refused` or a cost");
            Some(results.split(' ').map(letter).collect::<Result<Vec<_>>>()?)
        }
    };
    let versions = versions.map_or(Ok((0, u32::MAX)), range)?;
    Ok(Row { expression: expression.to_owned(), on_devices, versions })
}

fn letter(letter: &str) -> Result<Verdict> {
    Ok(match letter {
        "T" => Verdict::Can,
        "F" => Verdict::Cannot,
        "E" => Verdict::Error,
        other => bail!("{other} is no result"),
    })
}

fn range(text: &str) -> Result<(u32, u32)> {
    let (first, last) = text.split_once('-').context("want versions as 1.36-1.37")?;
    let minor = |text: &str, open: u32| match text.strip_prefix("1.") {
        Some(minor) => minor.parse().context("want versions as 1.36-1.37"),
        None if text.is_empty() => Ok(open),
        None => bail!("want versions as 1.36-1.37"),
    };
    Ok((minor(first, 0)?, minor(last, u32::MAX)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let text = "# a remark\n1\trefused\t-\tnot bool\ntrue\t0\tT F E\t\t1.36-\n";
        let rows = read(text).unwrap();
        assert_eq!(rows[0].on_devices, None);
        assert_eq!(rows[1].on_devices, Some(vec![Verdict::Can, Verdict::Cannot, Verdict::Error]));
        assert_eq!(rows[1].versions, (36, u32::MAX));
        assert_eq!(range("-1.36").unwrap(), (0, 36));
        for wrong in ["true\t0\tT", "true\tyes\tT\t", "true\t0\tX\t", "true\t0\tT\t\t1.36"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_table_is_long_enough() {
        let rows = read(include_str!("../../cel/tests/data/agreement.tsv")).unwrap();
        let accepted = rows.iter().filter(|row| row.on_devices.is_some()).count();
        assert!(rows.len() > 550 && accepted > 400, "{} rows, {accepted} accepted", rows.len());
        let four = |row: &&Row| row.on_devices.as_ref().is_none_or(|results| results.len() == 4);
        assert!(rows.iter().all(|row| four(&row)));
    }
}
