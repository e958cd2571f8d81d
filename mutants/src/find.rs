//! Every edit that could be made to a file: the operators of mutation, one visitor.
//!
//! Left alone: tests, anything under a `cfg`, constants and `const fn` (a switch is no constant), patterns,
//! what stands inside macros (assertions among them), `Debug` and `Display`, functions that only describe or
//! check (`describe`, `invariants`), and the steps that loops count for tests (`step`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

use crate::edit::{Around, Edit, Name};

/// The files of a crate that are compiled without tests, below `root`, starting at `lib.rs`.
pub fn modules(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    visit_module(&root.join("lib.rs"), root, &mut files)?;
    files.sort();
    Ok(files)
}

fn visit_module(file: &Path, children: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    files.push(file.to_path_buf());
    for item in syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?.items {
        if let syn::Item::Mod(module) = item
            && module.content.is_none()
            && !has_cfg(&module.attrs)
        {
            let name = module.ident.to_string();
            let (flat, folder) = (children.join(format!("{name}.rs")), children.join(&name));
            let file = if flat.exists() { flat } else { folder.join("mod.rs") };
            visit_module(&file, &folder, files)?;
        }
    }
    Ok(())
}

/// All edits of one file; `name` is its path below the sources.
pub fn edits(name: &str, source: &str) -> Result<Vec<Edit>> {
    let file = syn::parse_file(source).with_context(|| format!("cannot parse {name}"))?;
    let mut finder = Finder { name, source, path: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    number_repeated(&mut finder.found);
    Ok(finder.found)
}

fn number_repeated(edits: &mut [Edit]) {
    let mut seen = BTreeMap::<Name, usize>::new();
    for edit in edits {
        let times = seen.entry(edit.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            edit.name.function += &format!("#{times}");
        }
    }
}

struct Finder<'a> {
    name: &'a str,
    source: &'a str,
    path: Vec<String>,
    found: Vec<Edit>,
}

impl Finder<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        &self.source[node.span().byte_range()]
    }

    fn add(&mut self, range: Range<usize>, change: impl Into<String>, shown: &str, around: Around) {
        let line = self.source[..range.start].matches('\n').count() + 1;
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ").replace(" | ", " ¦ ");
        let mut text: String = words.chars().take(90).collect();
        if text.len() < words.len() {
            text.push('…');
        }
        let name =
            Name { file: self.name.into(), function: self.path.join("::"), change: change.into(), text };
        self.found.push(Edit { name, line, range, around });
    }

    /// An expression of one value becomes another.
    fn either(&mut self, node: &impl Spanned, change: String, edited: &str) {
        let shown = self.text(node).to_string();
        self.add(node.span().byte_range(), change, &shown, Around::either(edited));
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let name = signature.ident.to_string();
        if signature.constness.is_some() || matches!(name.as_str(), "describe" | "invariants" | "fmt") {
            return;
        }
        self.path.push(name);
        let at = body.brace_token.span.open().byte_range().end;
        for value in defaults(&signature.output, body) {
            let change = format!("body to {}", if value.is_empty() { "nothing" } else { value });
            self.add(at..at, change, "", Around::returns(value));
        }
        self.visit_block(body);
        self.path.pop();
    }
}

/// What a function could return at once. A body that says just that is left alone.
fn defaults(output: &syn::ReturnType, body: &syn::Block) -> Vec<&'static str> {
    let only = match body.stmts.as_slice() {
        [] => return Vec::new(),
        [only] => Some(only),
        _ => None,
    };
    match output {
        // A single statement is dropped as a statement.
        syn::ReturnType::Default => {
            if only.is_some() {
                vec![]
            } else {
                vec![""]
            }
        }
        syn::ReturnType::Type(_, kind) => {
            let syn::Type::Path(kind) = &**kind else { return Vec::new() };
            let Some(last) = kind.path.segments.last() else { return Vec::new() };
            match (last.ident.to_string().as_str(), only) {
                ("bool", Some(Stmt::Expr(Expr::Lit(_), None))) => vec![],
                ("bool", _) => vec!["true", "false"],
                ("Option", Some(Stmt::Expr(Expr::Path(_), None))) => vec![],
                ("Option", _) => vec!["None"],
                _ => vec![],
            }
        }
    }
}

fn has_cfg(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") || attribute.path().is_ident("test"))
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// The operator that takes the place of `op`.
fn other_operator(op: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match op {
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::And(_) => ("&&", "||"),
        BinOp::Or(_) => ("||", "&&"),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        BinOp::Mul(_) => ("*", "/"),
        BinOp::Div(_) => ("/", "*"),
        BinOp::AddAssign(_) => ("+=", "-="),
        BinOp::SubAssign(_) => ("-=", "+="),
        BinOp::MulAssign(_) => ("*=", "/="),
        BinOp::DivAssign(_) => ("/=", "*="),
        _ => return None,
    })
}

fn assigns(op: &BinOp) -> bool {
    use BinOp::{
        AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, RemAssign, ShlAssign,
        ShrAssign, SubAssign,
    };
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// It counts for tests, and is empty without them.
fn counts_steps(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if matches!(&*call.func, Expr::Path(of) if of.path.is_ident("step")))
}

/// What a statement does that could be left out.
fn droppable(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::MethodCall(call) if call.method == "invariants" => None,
        _ if counts_steps(expr) => None,
        Expr::MethodCall(_) | Expr::Call(_) => Some("drop call"),
        Expr::Try(inner) => droppable(&inner.expr),
        Expr::Assign(_) => Some("drop assignment"),
        Expr::Binary(binary) if assigns(&binary.op) => Some("drop assignment"),
        Expr::Return(_) => Some("drop return"),
        Expr::Continue(_) => Some("drop continue"),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Fn(function) => (&function.attrs, None),
            syn::Item::Impl(block) => {
                let of = block.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                if of.is_some_and(|of| matches!(of.ident.to_string().as_str(), "Debug" | "Display")) {
                    return;
                }
                let kind = match &*block.self_ty {
                    syn::Type::Path(kind) => kind.path.segments.last().map(|last| last.ident.to_string()),
                    _ => None,
                };
                (&block.attrs, kind)
            }
            syn::Item::Mod(module) => (&module.attrs, Some(module.ident.to_string())),
            syn::Item::Trait(definition) => (&definition.attrs, Some(definition.ident.to_string())),
            _ => return,
        };
        if has_cfg(attributes) {
            return;
        }
        let depth = self.path.len();
        self.path.extend(name);
        visit::visit_item(self, item);
        self.path.truncate(depth);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(method) = item
            && !has_cfg(&method.attrs)
        {
            self.function(&method.sig, &method.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(method) = item
            && let Some(body) = &method.default
            && !has_cfg(&method.attrs)
        {
            self.function(&method.sig, body);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Local(local) = statement
            && has_cfg(&local.attrs)
        {
            return;
        }
        if let Stmt::Expr(expr, semicolon) = statement
            && let Some(change) = droppable(expr)
            && (semicolon.is_some() || matches!(expr, Expr::Return(_) | Expr::Continue(_)))
            && !self.text(statement).starts_with('#')
        {
            let shown = self.text(statement).to_string();
            self.add(statement.span().byte_range(), change, &shown, Around::unless());
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Binary(binary) => {
                if let Some((old, new)) = other_operator(&binary.op)
                    && !has_let(expr)
                {
                    let (left, right) = (self.text(&binary.left), self.text(&binary.right));
                    let edited = if assigns(&binary.op) {
                        format!("{left} {new} {right}")
                    } else {
                        format!("({left}) {new} ({right})")
                    };
                    self.either(expr, format!("{old} to {new}"), &edited);
                }
            }
            Expr::MethodCall(call) if call.args.len() == 1 => {
                let (old, new) = match call.method.to_string().as_str() {
                    "min" => ("min", "max"),
                    "max" => ("max", "min"),
                    _ => return visit::visit_expr(self, expr),
                };
                let edited = format!("({}).{new}({})", self.text(&call.receiver), self.text(&call.args[0]));
                self.either(expr, format!("{old} to {new}"), &edited);
            }
            Expr::If(branch) => self.condition(&branch.cond, "negate if"),
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Bool(value) => {
                    let change = format!("{} to {}", value.value, !value.value);
                    let shown = self.line_around(expr);
                    self.add(expr.span().byte_range(), change, &shown, Around::negated());
                }
                syn::Lit::Int(value) => {
                    if let Ok(number) = value.base10_parse::<u128>() {
                        let shown = self.line_around(expr);
                        let edited = format!("{}{}", number + 1, value.suffix());
                        let around = Around::either(&edited);
                        self.add(expr.span().byte_range(), format!("{} to {edited}", value), &shown, around);
                    }
                }
                _ => {}
            },
            // The length is a constant.
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Const(_) => return,
            _ if counts_steps(expr) => return,
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, "negate guard");
        }
        visit::visit_arm(self, arm);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
}

impl Finder<'_> {
    fn condition(&mut self, condition: &Expr, change: &str) {
        let compared =
            matches!(condition, Expr::Binary(binary) if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)));
        // `==` becomes `!=` already.
        if !compared && !has_let(condition) {
            let shown = self.text(condition).to_string();
            self.add(condition.span().byte_range(), change, &shown, Around::negated());
        }
    }

    /// A literal says little without its line.
    fn line_around(&self, node: &impl Spanned) -> String {
        let Range { start, end } = node.span().byte_range();
        let from = self.source[..start].rfind('\n').map_or(0, |at| at + 1);
        let to = self.source[end..].find('\n').map_or(self.source.len(), |at| end + at);
        self.source[from..to].trim().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(source: &str) -> Vec<String> {
        edits("f.rs", source).unwrap().iter().map(|edit| edit.name.change.clone()).collect()
    }

    #[test]
    fn operators_literals_statements_and_bodies() {
        let source = "impl S { fn f(&self) -> bool { if self.a < 3 && self.b { return true; } self.g(); x += 1; a.min(b) == c } }";
        assert_eq!(
            changes(source),
            [
                "body to true",
                "body to false",
                "negate if",
                "&& to ||",
                "< to <=",
                "3 to 4",
                "drop return",
                "true to false",
                "drop call",
                "drop assignment",
                "+= to -=",
                "1 to 2",
                "== to !=",
                "min to max",
            ]
        );
    }

    #[test]
    fn constants_tests_patterns_and_macros_are_left_alone() {
        let source = "const A: u8 = 1 + 2; const fn f() -> bool { 1 < 2 } #[cfg(test)] mod tests { fn g() { h(); i(); } }
                      fn k() { debug_assert!(1 < 2); match x { 1 => {} 2..=3 => {} _ => {} } let [a, b] = [y; 4]; }
                      impl fmt::Debug for S { fn fmt(&self) { a(); b(); } }";
        assert_eq!(changes(source), ["body to nothing"]);
    }

    #[test]
    fn the_same_edit_twice_is_numbered() {
        let names: Vec<_> =
            edits("f.rs", "fn f() { a(); a(); }").unwrap().iter().map(|edit| edit.name.to_string()).collect();
        assert_eq!(
            names,
            ["f.rs | f | body to nothing | ", "f.rs | f | drop call | a();", "f.rs | f#2 | drop call | a();"]
        );
    }
}
