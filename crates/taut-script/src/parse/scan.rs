//! The characters of a script, with the line: spaces, comments, numbers, names. Called by the other files of
//! the parser.

use taut_core::Duration;

use super::{Wrong, seconds};

pub(super) struct Scan<'t> {
    text: &'t str,
    at: usize,
    /// Values around this place.
    pub(super) depth: u32,
}

impl<'t> Scan<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// The line, from 1.
    pub(super) fn line(&self) -> u32 {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        1 + before.bytes().filter(|&byte| byte == b'\n').count() as u32
    }

    /// Something else was expected here.
    pub(super) fn wrong(&self, expected: &str) -> Wrong {
        let found: String = self.rest().chars().take_while(|&c| c != '\n').take(40).collect();
        let found = if found.is_empty() { "the end of the line".to_owned() } else { format!("`{found}`") };
        (self.line(), format!("expected {expected}, found {found}"))
    }

    /// Passes spaces, ends of lines and comments.
    pub(super) fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") || trimmed.starts_with('#') {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                self.at += trimmed.find("*/").map_or(trimmed.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    pub(super) fn sees(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Passes `text` if it is next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.sees(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// The same after spaces.
    pub(super) fn takes(&mut self, text: &str) -> bool {
        self.skip();
        self.take(text)
    }

    /// Passes `text`, which must be next after spaces.
    pub(super) fn needs(&mut self, text: &str) -> Result<(), Wrong> {
        if self.takes(text) { Ok(()) } else { Err(self.wrong(&format!("`{text}`"))) }
    }

    /// Passes a word that must not go on: `ack`, but not `acked`.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        self.skip();
        let goes_on = self.rest().get(word.len()..).and_then(|rest| rest.chars().next()).is_some_and(is_name);
        !goes_on && self.take(word)
    }

    /// Everything before the first character that `ends`.
    pub(super) fn until(&mut self, ends: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let (text, _) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        self.at += text.len();
        text
    }

    /// Everything before `end`, which is passed, too.
    pub(super) fn up_to(&mut self, end: &str) -> Result<&'t str, Wrong> {
        let (text, _) =
            self.rest().split_once(end).ok_or_else(|| (self.line(), format!("`{end}` is missing")))?;
        self.at += text.len() + end.len();
        Ok(text)
    }

    pub(super) fn sees_number(&self) -> bool {
        let mut chars = self.rest().chars();
        match chars.next() {
            Some('.') => chars.next().is_some_and(|c| c.is_ascii_digit()),
            Some(c) => c.is_ascii_digit(),
            None => false,
        }
    }

    pub(super) fn sees_name(&self) -> bool {
        self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
    }

    /// A name, which may be empty.
    pub(super) fn name(&mut self) -> &'t str {
        self.until(|c| !is_name(c))
    }

    /// A span of time in seconds. Three dots after it are no decimal point.
    pub(super) fn seconds(&mut self) -> Result<Duration, Wrong> {
        let wrong = self.wrong("a time in seconds, with at most nine decimals");
        let rest = self.rest();
        let whole = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let after = rest.get(whole..).unwrap_or("");
        let mut len = whole;
        if after.starts_with('.') && !after.starts_with("..") {
            let digits = after.get(1..).unwrap_or("");
            len += 1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        }
        let text = rest.get(..len).unwrap_or("");
        if text.is_empty() || text == "." {
            return Err(wrong);
        }
        self.at += len;
        seconds(text).ok_or(wrong)
    }

    /// A whole number of a range, decimal, or hexadecimal after `0x`.
    pub(super) fn int<T: TryFrom<i64>>(&mut self) -> Result<T, Wrong> {
        self.skip();
        let wrong = self.wrong("a number");
        let minus = self.take("-");
        let (digits, radix) = if self.take("0x") || self.take("0X") {
            (self.until(|c| !c.is_ascii_hexdigit()), 16)
        } else {
            (self.until(|c| !c.is_ascii_digit()), 10)
        };
        let Ok(value) = i64::from_str_radix(digits, radix) else { return Err(wrong) };
        let value = if minus { -value } else { value };
        T::try_from(value).map_err(|_| (self.line(), format!("{value} is out of range here")))
    }

    /// Bytes as hexadecimal digits; none if there are no digits.
    pub(super) fn hex(&mut self) -> Result<Vec<u8>, Wrong> {
        self.skip();
        let wrong = self.wrong("pairs of hexadecimal digits");
        let digits = self.until(|c| !c.is_ascii_hexdigit());
        if !digits.len().is_multiple_of(2) {
            return Err(wrong);
        }
        let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(pair).collect::<Option<_>>().ok_or(wrong)
    }

    /// The first character after those that are `passed`.
    pub(super) fn ahead(&self, passed: fn(char) -> bool) -> Option<char> {
        self.rest().chars().find(|&c| !passed(c))
    }
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
