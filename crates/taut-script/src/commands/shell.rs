//! The part of a shell's language that packet scripts use in backticks: words with quotes, `$((1 << 20))`,
//! `$NAME`, comments, `&&`, `||`, `;`, redirections. Nothing is run: `commands.rs` does what the few programs
//! that scripts call would do to a network stack. Anything else is an error. Called by `commands.rs`.

use crate::code::{self, Names, Val, Vars};

/// A simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Simple {
    /// Its line within the text, from 0.
    pub(crate) line: u32,
    pub(crate) words: Vec<String>,
    /// Where its output goes, unless that is nowhere.
    pub(crate) to_file: Option<String>,
    /// Run only if the command before failed: it stands behind `||`.
    pub(crate) is_fallback: bool,
}

/// No names: `$(( ))` has numbers only.
struct NoNames;

impl Names for NoNames {
    fn value(&mut self, name: &str) -> Result<Val, String> {
        Err(format!("the shell has no variable {name} here"))
    }
}

/// Splits a text into simple commands.
///
/// # Errors
/// The line within the text, from 0, and what is not understood.
pub(crate) fn split(text: &str) -> Result<Vec<Simple>, (u32, String)> {
    let mut shell = Shell { rest: text, line: 0, commands: Vec::new(), now: Simple::default(), word: None };
    shell.read().map_err(|what| (shell.line, what))?;
    Ok(shell.commands)
}

struct Shell<'t> {
    rest: &'t str,
    line: u32,
    commands: Vec<Simple>,
    now: Simple,
    word: Option<String>,
}

/// Constructs that are not had, so that nothing half understood is run.
const RESERVED: [&str; 12] =
    ["if", "then", "else", "fi", "for", "do", "done", "while", "case", "esac", "function", "set"];

impl Shell<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(first) = self.rest.chars().next() {
            let (_, rest) = self.rest.split_at(first.len_utf8());
            match first {
                '\\' if rest.starts_with('\n') => {
                    self.line += 1;
                    self.rest = rest.get(1..).unwrap_or("");
                    continue;
                }
                '\\' => {
                    let next = rest.chars().next().unwrap_or('\\');
                    self.word.get_or_insert_default().push(next);
                    self.rest = rest.get(next.len_utf8()..).unwrap_or("");
                    continue;
                }
                '#' if self.word.is_none() => {
                    self.rest = rest.get(rest.find('\n').unwrap_or(rest.len())..).unwrap_or("");
                    continue;
                }
                '\n' | ';' => {
                    self.rest = rest;
                    self.end(false)?;
                    self.line += u32::from(first == '\n');
                    continue;
                }
                '\'' => {
                    let (text, after) = rest.split_once('\'').ok_or("a quote does not end")?;
                    self.word.get_or_insert_default().push_str(text);
                    self.line += text.matches('\n').count() as u32;
                    self.rest = after;
                    continue;
                }
                '"' => {
                    self.rest = rest;
                    self.quoted()?;
                    continue;
                }
                '$' => {
                    let text = self.dollar()?;
                    self.word.get_or_insert_default().push_str(&text);
                    continue;
                }
                _ => {}
            }
            if first.is_whitespace() {
                self.word_ends()?;
            } else if self.rest.starts_with("&&") || self.rest.starts_with("||") {
                let is_fallback = first == '|';
                self.rest = rest.get(1..).unwrap_or("");
                self.end(is_fallback)?;
                continue;
            } else if matches!(first, '>' | '<') || self.rest.starts_with("2>") || self.rest.starts_with("&>")
            {
                self.redirection()?;
                continue;
            } else if matches!(first, '|' | '&' | '(' | ')' | '`' | '{' | '}') {
                return Err(format!("`{first}` of the shell's language is not understood here"));
            } else {
                self.word.get_or_insert_default().push(first);
            }
            self.rest = rest;
        }
        self.end(false)
    }

    fn quoted(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        loop {
            let first = self.rest.chars().next().ok_or("a quote does not end")?;
            let (_, rest) = self.rest.split_at(first.len_utf8());
            match first {
                '"' => {
                    self.rest = rest;
                    return Ok(());
                }
                '$' => {
                    let text = self.dollar()?;
                    self.word.get_or_insert_default().push_str(&text);
                    continue;
                }
                '`' => return Err("a command within a quote is not understood here".to_owned()),
                '\n' => self.line += 1,
                _ => {}
            }
            if first != '\\' {
                self.word.get_or_insert_default().push(first);
            }
            self.rest = rest;
        }
    }

    /// `$((1+2))`, `$NAME`, `${NAME}`. The only variables are process numbers, which stay as they are
    /// written.
    fn dollar(&mut self) -> Result<String, String> {
        if let Some(rest) = self.rest.strip_prefix("$((") {
            let (text, rest) = rest.split_once("))").ok_or("$(( does not end")?;
            self.rest = rest;
            return Ok(code::eval(text, &mut NoNames, &mut Vars::new())?.to_string());
        }
        for name in ["$PPID", "${PPID}", "$$", "${PACKETDRILL_PID}", "$PACKETDRILL_PID"] {
            if let Some(rest) = self.rest.strip_prefix(name) {
                self.rest = rest;
                return Ok("PID".to_owned());
            }
        }
        let name: String = self.rest.chars().take_while(|c| !c.is_whitespace()).collect();
        Err(format!("`{name}`: the shell's variables and commands are not had here"))
    }

    fn redirection(&mut self) -> Result<(), String> {
        let first_len = self.rest.find(['>', '<']).unwrap_or(0);
        let is_input = self.rest.get(first_len..).is_some_and(|rest| rest.starts_with('<'));
        let is_stderr = self.rest.starts_with('2');
        if is_input {
            return Err("`<` of the shell's language is not understood here".to_owned());
        }
        self.word_ends()?;
        let rest = self.rest.get(first_len + 1..).unwrap_or("").trim_start_matches('>');
        let rest = rest.trim_start_matches([' ', '\t']);
        let len = rest.find([' ', '\t', '\n', ';']).unwrap_or(rest.len());
        let (target, rest) = rest.split_at(len);
        if !target.starts_with('&') && target != "/dev/null" && !is_stderr {
            self.now.to_file = Some(target.to_owned());
        }
        self.rest = rest;
        Ok(())
    }

    fn word_ends(&mut self) -> Result<(), String> {
        let Some(word) = self.word.take() else { return Ok(()) };
        if self.now.words.is_empty() {
            if RESERVED.contains(&word.as_str()) {
                return Err(format!("`{word}` of the shell's language is not understood here"));
            }
            self.now.line = self.line;
        }
        self.now.words.push(word);
        Ok(())
    }

    /// The command ends here, and the next one is run if this one fails, or anyway.
    fn end(&mut self, next_is_fallback: bool) -> Result<(), String> {
        self.word_ends()?;
        let next = Simple { is_fallback: next_is_fallback, ..Simple::default() };
        let command = std::mem::replace(&mut self.now, next);
        if !command.words.is_empty() {
            self.commands.push(command);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        split(text).unwrap().into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn words_quotes_numbers_and_lines() {
        let text = "sysctl -q a=\"4096 $((15*1024*1024))\" # note\n\n./x.py /proc/a=1 \\\n  b='c d' > /dev/null 2>&1; true && y || z";
        let expected: Vec<Vec<&str>> = vec![
            vec!["sysctl", "-q", "a=4096 15728640"],
            vec!["./x.py", "/proc/a=1", "b=c d"],
            vec!["true"],
            vec!["y"],
            vec!["z"],
        ];
        assert_eq!(words(text), expected);
        let commands = split(text).unwrap();
        assert_eq!(commands.iter().map(|command| command.line).collect::<Vec<_>>(), [0, 2, 3, 3, 3]);
        assert_eq!(
            commands.iter().map(|command| command.is_fallback).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn output_to_a_file_is_kept_and_variables_of_processes_stay() {
        let commands = split("echo 1 > /proc/sys/net/ipv4/tcp_ecn\n/tmp/restore_${PPID}.sh").unwrap();
        assert_eq!(commands[0].to_file.as_deref(), Some("/proc/sys/net/ipv4/tcp_ecn"));
        assert_eq!(commands[0].words, ["echo", "1"]);
        assert_eq!(commands[1].words, ["/tmp/restore_PID.sh"]);
    }

    #[test]
    fn the_rest_of_the_language_is_refused() {
        for (text, line) in [
            ("a | b", 0),
            ("\nfor x in y; do z; done", 1),
            ("$HOME/x", 0),
            ("(a)", 0),
            ("a 'b", 0),
            ("a < b", 0),
            ("x &", 0),
        ] {
            assert_eq!(split(text).unwrap_err().0, line, "{text}");
        }
    }
}
