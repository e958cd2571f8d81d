//! What a scenario, its cases and its variants are called, as names of files: two of a list must not have the
//! same one. Called by `scenario.rs`, and by everything that writes files.

/// A name of a file or a directory: letters, in lower case, and digits; a hyphen for all between them.
#[must_use]
pub fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        if c.is_alphanumeric() {
            slug.extend(c.to_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    // Nothing of a name would be the directory around it, which is meant where there is no name.
    if slug.is_empty() && !name.is_empty() { "unnamed".into() } else { slug.into() }
}

/// The first of these names whose files would be those of an earlier one: its number, and the reason.
pub(super) fn twin(names: &[&str]) -> Option<(usize, String)> {
    names.iter().enumerate().find_map(|(index, name)| {
        let earlier = names.iter().take(index).find(|other| slug(other) == slug(name))?;
        let why = if earlier == name {
            "is the name of an earlier one".to_owned()
        } else {
            format!("its files would have the same names as those of \"{earlier}\"")
        };
        Some((index, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_names_of_files() {
        assert_eq!(slug("1 Gbit/s, TSO"), "1-gbit-s-tso");
        assert_eq!(slug("tso-autosizing"), "tso-autosizing");
        assert_eq!(slug("20 µs, Éire"), "20-µs-éire");
        assert_eq!(slug("../.."), "unnamed");
        assert_eq!(slug("…"), "unnamed");
        assert_eq!(slug(""), "");
    }
}
