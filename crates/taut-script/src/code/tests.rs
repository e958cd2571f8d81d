//! Expressions have the values that Python gives them; statements, assertions that fail, and errors.

use super::*;

struct Known;

impl Names for Known {
    fn value(&mut self, name: &str) -> Result<Val, String> {
        if name == "tcpi_snd_cwnd" { Ok(Val::Int(10)) } else { Err(format!("{name} is unknown")) }
    }
}

fn value(text: &str) -> Result<Val, String> {
    eval(text, &mut Known, &mut Vars::new())
}

fn printed(text: &str) -> Result<String, (u32, String)> {
    run(text, &mut Known, &mut Vars::new())
}

#[test]
fn expressions_have_pythons_values() {
    for (text, expected) in [
        ("1 + 2 * 3", Val::Int(7)),
        ("(1 + 2) * 3", Val::Int(9)),
        ("7 / 2", Val::Float(3.5)),
        ("7 // 2", Val::Int(3)),
        ("-7 // 2", Val::Int(-4)),
        ("-7 % 3", Val::Int(2)),
        ("1 << 4 | 1", Val::Int(17)),
        ("0x10 & 0x18 ^ 1", Val::Int(17)),
        ("~0", Val::Int(-1)),
        ("1 < 2 < 3", Val::Bool(true)),
        ("1 < 3 < 2", Val::Bool(false)),
        ("not 1 == 2 and 3", Val::Int(3)),
        ("0 or 'text'", Val::Text("text".into())),
        ("max(1, 3, 2) - min(4, 2)", Val::Int(1)),
        ("abs(-3) + int(2.9) + round(2.5)", Val::Int(7)),
        ("1.5 == 3 / 2", Val::Bool(true)),
        ("'cwnd=%d of %s%%' % (tcpi_snd_cwnd, 'x')", Val::Text("cwnd=10 of x%".into())),
        ("True + 1", Val::Int(2)),
        ("None == None", Val::Bool(true)),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
}

#[test]
fn statements_run_in_order_and_remember() {
    let text = "\nassert tcpi_snd_cwnd == 10, tcpi_snd_cwnd\na = 2; b = a * 3  # six\nprint(a, b)\nprint 'x'\nassert (a <\n b)";
    assert_eq!(printed(text), Ok("2 6\nx\n".to_owned()));
}

#[test]
fn an_assertion_that_fails_says_what_the_names_were() {
    let failed = printed("\n assert tcpi_snd_cwnd == 11 and tcpi_snd_cwnd > 1, 'cwnd=%d' % tcpi_snd_cwnd");
    let expected = "assertion failed: assert tcpi_snd_cwnd == 11 and tcpi_snd_cwnd > 1, 'cwnd=%d' % tcpi_snd_cwnd \
                    (cwnd=10)\n  tcpi_snd_cwnd is 10";
    assert_eq!(failed, Err((1, expected.to_owned())));
}

#[test]
fn errors_are_clear_and_nothing_panics() {
    for (text, expected) in [
        ("unknown", "unknown is unknown"),
        (
            "import os",
            "`import` is no part of this language: it has assert, print, assignments and expressions",
        ),
        ("1 +", "an expression is missing"),
        ("1 2", "unexpected `2`"),
        ("(1", "a bracket does not end"),
        ("1 // 0", "1 // 0 has no value"),
        ("1 / 0", "/ cannot join 1 and 0"),
        ("1 << 200", "1 << 200 has no value"),
        ("'a' - 1", "- cannot join a and 1"),
        ("'%d %d' % 1", "the format has more places than values"),
        ("len(1)", "there is no function len; there are abs, min, max, int, float and round"),
        ("'never", "a text does not end"),
        ("1x", "`1x` is no number"),
        ("?", "`?` means nothing here"),
    ] {
        assert_eq!(printed(text), Err((0, expected.to_owned())), "{text}");
    }
    for sign in ["(", "-", "not ", "f("] {
        let deep = printed(&sign.repeat(100_000));
        assert_eq!(deep, Err((0, "more than 50 expressions within each other".to_owned())));
    }
}
