//! Features, modules and the code for other libraries are as the documentation has them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MANIFEST: &str = include_str!("../../Cargo.toml");
const LIBRARY: &str = include_str!("../../src/lib.rs");

/// The cells of a table's rows, from the line with these headings to the next line that is no row.
fn table<'a>(text: &'a str, headings: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().map(|line| line.trim_start_matches("//! ")).skip_while(|line| *line != headings);
    let rows: Vec<_> = rows.skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(!rows.is_empty(), "no table {headings}");
    rows.iter().map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_table_of_features_is_that_of_the_manifest() {
    let (_, features) = MANIFEST.split_once("[features]\n").unwrap();
    let (features, _) = features.split_once("\n\n").unwrap();
    let lines = features.lines().filter(|line| !line.starts_with('#'));
    let mut features: Vec<_> = lines.map(|line| line.split_once(" = ").unwrap()).collect();
    assert_eq!(features.remove(0).0, "default");
    let default = MANIFEST.lines().find(|line| line.starts_with("default = ")).unwrap();
    let is_default = |name: &str| if default.contains(&format!("\"{name}\"")) { "yes" } else { "no" };
    let expected: Vec<_> = features.iter().map(|(name, _)| (format!("`{name}`"), is_default(name))).collect();
    let rows = table(LIBRARY, "| feature | default | adds |");
    let found: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), row[1])).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_map_has_every_public_module() {
    let public = LIBRARY.lines().filter_map(|line| line.strip_prefix("pub mod ")?.split([' ', ';']).next());
    // Modules of other crates.
    let public: BTreeSet<_> = public.chain(["congestion", "taut_control"]).collect();
    let rows = table(LIBRARY, "| module | has |");
    assert_eq!(rows[0][0], "the root");
    let mapped: Vec<_> =
        rows[1..].iter().map(|row| row[0].trim_matches(['[', ']', '`'].as_slice())).collect();
    assert_eq!(mapped.iter().copied().collect::<BTreeSet<_>>(), public);
    assert_eq!(mapped.len(), public.len(), "a module twice");
}

/// Each row of the guide's page shows code that its example has.
#[test]
fn the_lines_for_other_libraries_are_in_their_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let page = fs::read_to_string(folder.join("adapters.md")).unwrap();
    let packed = |text: &str| text.split_whitespace().collect::<String>();
    for row in table(&page, "| library | line | example |") {
        let path = row[2].split_once("](").unwrap().1.trim_end_matches(')');
        let example = fs::read_to_string(folder.join(path)).unwrap();
        assert!(packed(&example).contains(&packed(row[1].trim_matches('`'))), "{path} has no {}", row[1]);
        assert!(example.lines().count() <= 40, "{path} is longer than 40 lines");
    }
}
