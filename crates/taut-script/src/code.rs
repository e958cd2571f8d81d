//! The code in `%{ }%`: assertions about a connection, in a small part of Python's expressions.
//!
//! Statements, one a line or separated by `;`: `assert a == b`, `assert a, message`, `print(a, b)`,
//! `name = a`, `pass`. Expressions: numbers, texts, names, `or and not`, comparisons (also `a < b < c`),
//! `| ^ & << >> + - * / // %`, brackets, and `abs min max int float round`. A text with `%` formats
//! (`%d %s %u %i %x %f`). There is no control flow, no import and no definition: such a script gets an error
//! that says so.
//!
//! Names that are not assigned are asked of the [`Names`]: what the connection reports. Called by the runner,
//! and by the shell for `$(( ))`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

/// A value of the language.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    /// A whole number.
    Int(i128),
    /// Another number.
    Float(f64),
    /// A text.
    Text(String),
    /// `True`, `False`.
    Bool(bool),
    /// `None`.
    None,
    /// `(a, b)`.
    Tuple(Vec<Val>),
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => f.write_str(text),
            Self::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Self::None => f.write_str("None"),
            Self::Tuple(values) => {
                let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
                write!(f, "({})", texts.join(", "))
            }
        }
    }
}

impl Val {
    fn is_true(&self) -> bool {
        match self {
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Bool(value) => *value,
            Self::None => false,
            Self::Tuple(values) => !values.is_empty(),
        }
    }

    fn int(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Bool(value) => Some((*value).into()),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            _ => self.int().map(|value| value as f64),
        }
    }
}

/// Names that code may use besides those that it assigns.
pub(crate) trait Names {
    /// The value of a name.
    ///
    /// # Errors
    /// Why it has none.
    fn value(&mut self, name: &str) -> Result<Val, String>;

    /// A function that the language does not have by itself.
    ///
    /// # Errors
    /// Why there is none.
    fn call(&mut self, name: &str, _args: &[Val]) -> Result<Val, String> {
        Err(format!("there is no function {name}; there are abs, min, max, int, float and round"))
    }
}

/// Variables, kept from one block of code to the next.
pub(crate) type Vars = BTreeMap<String, Val>;

/// Runs a block; returns what it printed.
///
/// # Errors
/// The line within the block, from 0, and what is wrong.
pub(crate) fn run(text: &str, names: &mut dyn Names, vars: &mut Vars) -> Result<String, (u32, String)> {
    let mut printed = String::new();
    for (line, tokens, source) in statements(text)? {
        let mut eval = Eval { tokens: &tokens, at: 0, depth: 0, names: &mut *names, vars: &mut *vars };
        eval.statement(&source, &mut printed).map_err(|what| (line, what))?;
    }
    Ok(printed)
}

/// The value of one expression.
pub(crate) fn eval(text: &str, names: &mut dyn Names, vars: &mut Vars) -> Result<Val, String> {
    let (tokens, _) = tokens(text).map_err(|(_, what)| what)?;
    let tokens: Vec<_> =
        tokens.into_iter().map(|(_, token)| token).filter(|token| *token != Token::End).collect();
    let mut eval = Eval { tokens: &tokens, at: 0, depth: 0, names, vars };
    let value = eval.expression()?;
    eval.finish()?;
    Ok(value)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Int(i128),
    Float(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
    /// The end of a statement.
    End,
}

/// Longer ones first.
const SIGNS: [&str; 25] = [
    "**", "//", "==", "!=", "<=", ">=", "<<", ">>", "(", ")", ",", "+", "-", "*", "/", "%", "<", ">", "=",
    "|", "&", "^", "~", "[", "]",
];

type Tokens = (Vec<(u32, Token)>, u32);

fn tokens(text: &str) -> Result<Tokens, (u32, String)> {
    let mut rest = text;
    let (mut line, mut depth) = (0, 0_u32);
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let mut len = first.len_utf8();
        let word = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let token = match first {
            '\n' | ';' => {
                let ends = depth == 0;
                let token = ends.then_some(Token::End);
                if let Some(token) = token {
                    tokens.push((line, token));
                }
                line += u32::from(first == '\n');
                None
            }
            '#' => {
                len = rest.find('\n').unwrap_or(rest.len());
                None
            }
            c if c.is_whitespace() || c == '\\' => None,
            '0'..='9' | '.' => {
                len = word(|c| c.is_ascii_alphanumeric() || c == '.');
                Some(
                    number(rest.get(..len).unwrap_or(""))
                        .ok_or_else(|| (line, format!("`{}` is no number", rest.get(..len).unwrap_or(""))))?,
                )
            }
            c if c.is_alphabetic() || c == '_' => {
                len = word(|c| c.is_alphanumeric() || c == '_');
                Some(Token::Name(rest.get(..len).unwrap_or("").to_owned()))
            }
            '\'' | '"' => {
                let body = rest.get(1..).unwrap_or("");
                let end = body.find(first).ok_or_else(|| (line, "a text does not end".to_owned()))?;
                len = end + 2;
                Some(Token::Text(body.get(..end).unwrap_or("").to_owned()))
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| (line, format!("`{first}` means nothing here")))?;
                len = sign.len();
                match sign {
                    "(" | "[" => depth += 1,
                    ")" | "]" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                Some(Token::Sign(sign))
            }
        };
        tokens.extend(token.map(|token| (line, token)));
        rest = rest.get(len..).unwrap_or("");
    }
    tokens.push((line, Token::End));
    Ok((tokens, line))
}

fn number(text: &str) -> Option<Token> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return i128::from_str_radix(digits, 16).ok().map(Token::Int);
    }
    text.parse().map(Token::Int).or_else(|_| text.parse().map(Token::Float)).ok()
}

type Statement = (u32, Vec<Token>, String);

/// The statements with their lines, and each as a text for messages.
fn statements(text: &str) -> Result<Vec<Statement>, (u32, String)> {
    let (tokens, _) = tokens(text)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut statements = Vec::new();
    for part in tokens.split_inclusive(|(_, token)| *token == Token::End) {
        let Some(&(line, ref first)) = part.first() else { continue };
        if *first == Token::End {
            continue;
        }
        let source = lines.get(line as usize).map_or("", |line| line.trim()).to_owned();
        let list = part.iter().map(|(_, token)| token.clone()).filter(|token| *token != Token::End).collect();
        statements.push((line, list, source));
    }
    Ok(statements)
}

struct Eval<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Brackets and signs around this place.
    depth: u32,
    names: &'a mut dyn Names,
    vars: &'a mut Vars,
}

/// Words of Python that are no part of this language.
const FOREIGN: [&str; 14] = [
    "if", "for", "while", "import", "from", "def", "class", "lambda", "try", "with", "return", "del",
    "global", "raise",
];

/// Expressions within each other.
const DEPTH_MAX: u32 = 50;

/// Binary operators by rank, the weakest first.
const RANKS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];

impl Eval<'_> {
    fn sees(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Sign(is)) if *is == sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.sees(sign);
        self.at += usize::from(found);
        found
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Name(is)) if is == name);
        self.at += usize::from(found);
        found
    }

    fn finish(&self) -> Result<(), String> {
        match self.tokens.get(self.at) {
            None => Ok(()),
            Some(token) => Err(format!("unexpected {}", describe(token))),
        }
    }

    fn statement(&mut self, source: &str, printed: &mut String) -> Result<(), String> {
        if let Some(Token::Name(name)) = self.tokens.first()
            && FOREIGN.contains(&name.as_str())
        {
            return Err(format!(
                "`{name}` is no part of this language: it has assert, print, assignments and expressions"
            ));
        }
        if self.takes_name("pass") {
            return self.finish();
        }
        if self.takes_name("assert") {
            return self.assert(source);
        }
        if self.takes_name("print") {
            let value = if self.at < self.tokens.len() { self.tuple()? } else { Val::Text(String::new()) };
            let text = match value {
                Val::Tuple(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
                value => value.to_string(),
            };
            printed.push_str(&text);
            printed.push('\n');
            return self.finish();
        }
        if let [Token::Name(name), Token::Sign("="), ..] = self.tokens {
            self.at = 2;
            let value = self.tuple()?;
            self.vars.insert(name.clone(), value);
            return self.finish();
        }
        self.tuple()?;
        self.finish()
    }

    fn assert(&mut self, source: &str) -> Result<(), String> {
        let from = self.at;
        let holds = self.expression()?.is_true();
        let condition = self.tokens.get(from..self.at).unwrap_or_default().to_vec();
        let message = if self.takes(",") { Some(self.tuple()?) } else { None };
        self.finish()?;
        if holds {
            return Ok(());
        }
        // What the names in it were, for the reader.
        let mut values = Vec::new();
        for token in &condition {
            if let Token::Name(name) = token
                && !is_word(name)
                && let Ok(value) = self.name(name)
            {
                let text = format!("{name} is {value}");
                if !values.contains(&text) {
                    values.push(text);
                }
            }
        }
        let message = message.map(|message| format!(" ({message})")).unwrap_or_default();
        let values = if values.is_empty() { String::new() } else { format!("\n  {}", values.join(", ")) };
        Err(format!("assertion failed: {source}{message}{values}"))
    }

    /// An expression, or several with commas.
    fn tuple(&mut self) -> Result<Val, String> {
        let first = self.expression()?;
        if !self.sees(",") {
            return Ok(first);
        }
        let mut values = vec![first];
        while self.takes(",") {
            if self.sees(")") || self.at == self.tokens.len() {
                break;
            }
            values.push(self.expression()?);
        }
        Ok(Val::Tuple(values))
    }

    /// Goes into an inner expression. Their depth is bounded, because each takes the program's stack.
    fn inner(&mut self, read: fn(&mut Self) -> Result<Val, String>) -> Result<Val, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} expressions within each other"));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn expression(&mut self) -> Result<Val, String> {
        let mut left = self.conjunction()?;
        while self.takes_name("or") {
            let right = self.conjunction()?;
            left = if left.is_true() { left } else { right };
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Val, String> {
        let mut left = self.negation()?;
        while self.takes_name("and") {
            let right = self.negation()?;
            left = if left.is_true() { right } else { left };
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Val, String> {
        if self.takes_name("not") {
            return Ok(Val::Bool(!self.inner(Self::negation)?.is_true()));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Val, String> {
        const COMPARISONS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
        let mut left = self.binary(0)?;
        let mut holds = None;
        while let Some(sign) = COMPARISONS.into_iter().find(|sign| self.takes(sign)) {
            let right = self.binary(0)?;
            let this = compare(sign, &left, &right)?;
            holds = Some(holds.unwrap_or(true) && this);
            left = right;
        }
        Ok(holds.map_or(left, Val::Bool))
    }

    fn binary(&mut self, rank: usize) -> Result<Val, String> {
        let Some(signs) = RANKS.get(rank) else { return self.unary() };
        let mut left = self.binary(rank + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.takes(sign)) {
            let right = self.binary(rank + 1)?;
            left = combine(sign, &left, &right)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Val, String> {
        if self.takes("-") {
            let value = self.inner(Self::unary)?;
            return combine("-", &Val::Int(0), &value);
        }
        if self.takes("~") {
            let value = self.inner(Self::unary)?;
            return value
                .int()
                .map(|value| Val::Int(!value))
                .ok_or_else(|| "~ needs a whole number".to_owned());
        }
        self.takes("+");
        self.primary()
    }

    fn primary(&mut self) -> Result<Val, String> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        match token {
            Some(Token::Int(value)) => Ok(Val::Int(value)),
            Some(Token::Float(value)) => Ok(Val::Float(value)),
            Some(Token::Text(text)) => Ok(Val::Text(text)),
            Some(Token::Sign("(")) => {
                if self.takes(")") {
                    return Ok(Val::Tuple(Vec::new()));
                }
                let value = self.inner(Self::tuple)?;
                if self.takes(")") { Ok(value) } else { Err("a bracket does not end".to_owned()) }
            }
            Some(Token::Name(name)) if self.takes("(") => {
                let args = if self.sees(")") { Val::Tuple(Vec::new()) } else { self.inner(Self::tuple)? };
                if !self.takes(")") {
                    return Err("a bracket does not end".to_owned());
                }
                let args = if let Val::Tuple(args) = args { args } else { vec![args] };
                self.call(&name, &args)
            }
            Some(Token::Name(name)) => self.name(&name),
            Some(token) => Err(format!("unexpected {}", describe(&token))),
            None => Err("an expression is missing".to_owned()),
        }
    }

    fn name(&mut self, name: &str) -> Result<Val, String> {
        match name {
            "True" | "true" => Ok(Val::Bool(true)),
            "False" | "false" => Ok(Val::Bool(false)),
            "None" => Ok(Val::None),
            _ => match self.vars.get(name) {
                Some(value) => Ok(value.clone()),
                None => self.names.value(name),
            },
        }
    }

    fn call(&mut self, name: &str, args: &[Val]) -> Result<Val, String> {
        let number = |value: &Val| value.float().ok_or_else(|| format!("{name} needs numbers"));
        match (name, args) {
            ("min" | "max", [first, rest @ ..]) => {
                let mut best = first.clone();
                for value in rest {
                    let less = number(value)? < number(&best)?;
                    if less == (name == "min") {
                        best = value.clone();
                    }
                }
                Ok(best)
            }
            ("abs", [Val::Float(value)]) => Ok(Val::Float(value.abs())),
            ("abs", [value]) => {
                value.int().map(|value| Val::Int(value.abs())).ok_or_else(|| "abs needs a number".to_owned())
            }
            ("int", [Val::Float(value)]) => Ok(Val::Int(value.trunc() as i128)),
            ("int", [value]) => value.int().map(Val::Int).ok_or_else(|| "int needs a number".to_owned()),
            ("float", [value]) => Ok(Val::Float(number(value)?)),
            ("round", [value]) => Ok(Val::Int(number(value)?.round_ties_even() as i128)),
            _ => self.names.call(name, args),
        }
    }
}

fn is_word(name: &str) -> bool {
    matches!(name, "and" | "or" | "not" | "True" | "False" | "None")
}

fn describe(token: &Token) -> String {
    match token {
        Token::Int(value) => format!("`{value}`"),
        Token::Float(value) => format!("`{value}`"),
        Token::Text(text) => format!("text \"{text}\""),
        Token::Name(name) => format!("`{name}`"),
        Token::Sign(sign) => format!("`{sign}`"),
        Token::End => "end".to_owned(),
    }
}

fn compare(sign: &str, left: &Val, right: &Val) -> Result<bool, String> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (left, right) {
        (Val::Text(left), Val::Text(right)) => Some(left.cmp(right)),
        _ => match (left.int(), right.int()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => match (left.float(), right.float()) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                _ if sign == "==" || sign == "!=" => Some(if left == right { Equal } else { Less }),
                _ => return Err(format!("{left} and {right} cannot be compared by {sign}")),
            },
        },
    };
    Ok(match sign {
        "==" => order == Some(Equal),
        "!=" => order != Some(Equal),
        "<" => order == Some(Less),
        "<=" => matches!(order, Some(Less | Equal)),
        ">" => order == Some(Greater),
        _ => matches!(order, Some(Greater | Equal)),
    })
}

fn combine(sign: &str, left: &Val, right: &Val) -> Result<Val, String> {
    if let (Val::Text(format), "%") = (left, sign) {
        return formatted(format, right.clone());
    }
    if let (Val::Text(left), "+", Val::Text(right)) = (left, sign, right) {
        return Ok(Val::Text(format!("{left}{right}")));
    }
    let needs = |left: &Val, right: &Val| format!("{sign} cannot join {left} and {right}");
    if let (Some(a), Some(b)) = (left.int(), right.int())
        && sign != "/"
    {
        let shift = u32::try_from(b).ok().filter(|&bits| bits < 127);
        let value = match sign {
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "//" => a.checked_div_euclid(b).filter(|_| b > 0),
            "%" => a.checked_rem_euclid(b).filter(|_| b > 0),
            "|" => Some(a | b),
            "&" => Some(a & b),
            "^" => Some(a ^ b),
            "<<" => shift.and_then(|bits| a.checked_mul(1 << bits)),
            _ => shift.map(|bits| a >> bits),
        };
        return value.map(Val::Int).ok_or_else(|| format!("{a} {sign} {b} has no value"));
    }
    let (Some(a), Some(b)) = (left.float(), right.float()) else { return Err(needs(left, right)) };
    match sign {
        "+" => Ok(Val::Float(a + b)),
        "-" => Ok(Val::Float(a - b)),
        "*" => Ok(Val::Float(a * b)),
        "/" if b != 0.0 => Ok(Val::Float(a / b)),
        "//" if b != 0.0 => Ok(Val::Float((a / b).floor())),
        "%" if b != 0.0 => Ok(Val::Float(a - b * (a / b).floor())),
        _ => Err(needs(left, right)),
    }
}

/// `'cwnd=%d' % cwnd`
fn formatted(format: &str, value: Val) -> Result<Val, String> {
    let mut values = if let Val::Tuple(values) = value { values } else { vec![value] }.into_iter();
    let mut parts = format.split('%');
    let mut text = parts.next().unwrap_or("").to_owned();
    let mut is_percent = false;
    for part in parts {
        if is_percent {
            (is_percent, text) = (false, text + part);
            continue;
        }
        if part.is_empty() {
            (is_percent, text) = (true, text + "%");
            continue;
        }
        let letter = part.find(|c: char| c.is_ascii_alphabetic()).ok_or("a % of the format has no letter")?;
        let (kind, rest) = part.split_at(letter + 1);
        let value = values.next().ok_or("the format has more places than values")?;
        match (kind.chars().last(), value.int()) {
            (Some('x'), Some(value)) => text += &format!("{value:x}"),
            (Some('f'), _) => text += &format!("{:.6}", value.float().ok_or("%f needs a number")?),
            (Some('d' | 'i' | 'u' | 's' | 'r' | 'g'), _) => text += &value.to_string(),
            _ => return Err(format!("there is no format %{kind}")),
        }
        text += rest;
    }
    Ok(Val::Text(text))
}
