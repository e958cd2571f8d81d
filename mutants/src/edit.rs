//! One edit of the sources: what it changes, where, and the text that switches it on.
//!
//! An edit never replaces text. It puts a `prefix` before and a `suffix` after a range of the file, which together run the
//! edited code when the edit is on, and else what the range has always said:
//!
//! ```text
//!     (if crate::mutant::on(17) { (a) <= (b) } else { a < b })
//! ```
//!
//! So any number of edits fit into one build, also one inside the other: only one is ever on.

use std::fmt;
use std::ops::Range;

/// Which edit, in words that stay the same while other code changes: results and the list of equivalent edits are kept
/// under this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Below `crates/taut-core/src`: `egress/plan.rs`.
    pub file: String,
    /// `Plan::gate`, and `#2` when the function has the same edit of the same text twice.
    pub function: String,
    /// `< to <=`.
    pub change: String,
    /// The text that is changed, in one line, shortened.
    pub text: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {} | {}", self.file, self.function, self.change, self.text)
    }
}

/// What is put around the range; `ON` stands for the call that asks whether the edit is on.
#[derive(Clone, Debug)]
pub struct Around {
    pub prefix: String,
    pub suffix: String,
}

impl Around {
    /// `(if ON { edited } else { … })`
    pub fn either(edited: &str) -> Around {
        Around { prefix: format!("(if ON {{ {edited} }} else {{ "), suffix: " })".into() }
    }

    /// `if !ON { … }`
    pub fn unless() -> Around {
        Around { prefix: "if !ON { ".into(), suffix: " }".into() }
    }

    /// `(ON != (…))`
    pub fn negated() -> Around {
        Around { prefix: "(ON != (".into(), suffix: "))".into() }
    }

    /// `if ON { return value; }`, at an empty range.
    pub fn returns(value: &str) -> Around {
        Around { prefix: format!(" if ON {{ return {value}; }} "), suffix: String::new() }
    }
}

#[derive(Clone, Debug)]
pub struct Edit {
    pub name: Name,
    pub line: usize,
    pub range: Range<usize>,
    pub around: Around,
}

impl Edit {
    /// The folder of the core that the edit is in.
    pub fn folder(&self) -> &str {
        self.name.file.split('/').next().unwrap_or_default()
    }
}

/// `source` with all `edits` in it, which have these numbers; and where each is found in the result.
pub fn splice(source: &str, edits: &[(usize, &Edit)]) -> (String, Vec<(usize, Range<usize>)>) {
    // Outer edits begin first and end last.
    let mut order: Vec<_> = edits.to_vec();
    order.sort_by_key(|(number, edit)| (edit.range.start, std::cmp::Reverse(edit.range.end), *number));
    let (mut text, mut places) = (String::with_capacity(source.len() * 4), Vec::new());
    let (mut open, mut at) = (Vec::<(usize, usize, &Edit)>::new(), 0);
    let close = |text: &mut String,
                 at: &mut usize,
                 places: &mut Vec<_>,
                 (number, start, edit): (usize, usize, &Edit)| {
        text.push_str(&source[*at..edit.range.end]);
        *at = edit.range.end;
        text.push_str(&edit.around.suffix);
        places.push((number, start..text.len()));
    };
    for (number, edit) in order {
        while open.last().is_some_and(|(.., outer)| outer.range.end <= edit.range.start) {
            close(&mut text, &mut at, &mut places, open.pop().expect("just seen"));
        }
        text.push_str(&source[at..edit.range.start]);
        at = edit.range.start;
        let start = text.len();
        text.push_str(&edit.around.prefix.replace("ON", &format!("crate::mutant::on({number})")));
        open.push((number, start, edit));
    }
    while let Some(inner) = open.pop() {
        close(&mut text, &mut at, &mut places, inner);
    }
    text.push_str(&source[at..]);
    (text, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_fit_into_one_another() {
        let source = "let x = a < b + 1;";
        let edit = |range: Range<usize>, edited: &str| Edit {
            name: Name {
                file: "f.rs".into(),
                function: "f".into(),
                change: String::new(),
                text: String::new(),
            },
            line: 1,
            range,
            around: Around::either(edited),
        };
        let (outer, inner) = (edit(8..17, "(a) <= (b + 1)"), edit(12..17, "(b) - (1)"));
        let (text, places) = splice(source, &[(3, &outer), (4, &inner)]);
        assert_eq!(
            text,
            "let x = (if crate::mutant::on(3) { (a) <= (b + 1) } else { a < \
             (if crate::mutant::on(4) { (b) - (1) } else { b + 1 }) });"
        );
        assert_eq!(places.len(), 2);
        assert!(
            text[places[0].1.clone()].starts_with("(if crate::mutant::on(4)"),
            "the inner one ends first"
        );
        assert!(text[places[1].1.clone()].ends_with("}) })"));
    }
}
