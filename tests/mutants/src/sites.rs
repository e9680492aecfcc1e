//! Finds the places where a source can be changed, and what they are changed to.

use std::ops::Range;
use std::path::Path;

use proc_macro2::Span;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, Stmt, UnOp};

use crate::{FOLDERS, Outcome};

/// A change of one place in one file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mutant {
    /// Which one of all; 0 is none.
    pub(crate) number: u32,
    /// From the root of the repository.
    pub(crate) file: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Bytes of the file that are replaced.
    pub(crate) range: Range<usize>,
    /// What is there.
    pub(crate) original: String,
    /// What is there when the mutant is switched on.
    pub(crate) mutated: String,
    /// How the two are written as one.
    pub(crate) form: Form,
}

/// How original and change are put side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An expression, instead of another of the same type.
    Either,
    /// A condition, which is negated.
    Negated,
    /// A statement, which is left out.
    Dropped,
}

impl Form {
    /// Its name in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Either => "either",
            Self::Negated => "negated",
            Self::Dropped => "dropped",
        }
    }

    /// The form of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Either, Self::Negated, Self::Dropped];
        all.into_iter().find(|form| form.name() == name)
    }
}

impl Mutant {
    /// The folder of the library that it is in.
    pub(crate) fn folder(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    /// What replaces the original in the source.
    pub(crate) fn switched(&self) -> String {
        let (on, original) = (
            format!("crate::mutants::on({})", self.number),
            &self.original,
        );
        match self.form {
            Form::Either => format!("(if {on} {{ {} }} else {{ {original} }})", self.mutated),
            Form::Negated => format!("(({original}) != {on})"),
            Form::Dropped => format!("if !{on} {{ {original} }}"),
        }
    }
}

/// All that could be done to a file.
pub(crate) fn of_file(root: &Path, file: &str) -> Outcome<Vec<Mutant>> {
    let text = std::fs::read_to_string(root.join(file))?;
    let parsed = syn::parse_file(&text)?;
    let mut finder = Finder {
        text: &text,
        file,
        found: Vec::new(),
    };
    finder.visit_file(&parsed);
    Ok(finder.found)
}

/// Draws `count` mutants that do not overlap, as many from each folder as from the others where there are enough.
pub(crate) fn draw(mut all: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for i in (1..all.len()).rev() {
        all.swap(i, rng.random_range(0..=i));
    }
    let mut chosen: Vec<Mutant> = Vec::new();
    // In turn, so that a folder with few sites leaves its share to the others.
    let mut queues = FOLDERS.map(|folder| {
        let of_folder = all.iter().filter(|mutant| mutant.folder() == folder);
        of_folder.cloned().collect::<Vec<_>>()
    });
    while chosen.len() < count && queues.iter().any(|queue| !queue.is_empty()) {
        for queue in &mut queues {
            let free = |mutant: &Mutant| {
                !chosen.iter().any(|other| {
                    other.file == mutant.file
                        && other.range.start < mutant.range.end
                        && mutant.range.start < other.range.end
                })
            };
            queue.retain(free);
            if let Some(mutant) = queue.pop()
                && chosen.len() < count
            {
                chosen.push(mutant);
            }
        }
    }
    chosen.sort_by(|a, b| (&a.file, a.range.start).cmp(&(&b.file, b.range.start)));
    for (number, mutant) in chosen.iter_mut().enumerate() {
        mutant.number = number as u32 + 1;
    }
    chosen
}

/// Walks through a file and notes what can be changed.
struct Finder<'t> {
    text: &'t str,
    file: &'t str,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn add(&mut self, span: Span, mutated: String, form: Form) {
        let range = span.byte_range();
        self.found.push(Mutant {
            number: 0,
            file: self.file.to_owned(),
            line: span.start().line,
            original: self.text[range.clone()].to_owned(),
            range,
            mutated,
            form,
        });
    }

    /// The source of an expression with a part of it replaced.
    fn replaced(&self, whole: Span, part: Span, by: &str) -> String {
        let (whole, part) = (whole.byte_range(), part.byte_range());
        let text = self.text;
        let (before, after) = (&text[whole.start..part.start], &text[part.end..whole.end]);
        format!("{before}{by}{after}")
    }

    fn condition(&mut self, condition: &Expr) {
        // `if let`, alone or in a chain, is no bool.
        if !contains_let(condition) {
            self.add(condition.span(), "negated".into(), Form::Negated);
        }
    }
}

fn contains_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        Expr::Paren(paren) => contains_let(&paren.expr),
        _ => false,
    }
}

/// What an operator is changed to.
fn other_operator(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "/",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "/=",
        BinOp::DivAssign(_) => "*=",
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        _ => return None,
    })
}

/// What a method is changed to; nothing leaves the call out.
fn other_method(name: &str) -> Option<Option<&'static str>> {
    Some(match name {
        "min" => Some("max"),
        "max" => Some("min"),
        "all" => Some("any"),
        "any" => Some("all"),
        "floor" => Some("ceil"),
        "ceil" => Some("floor"),
        "is_some" => Some("is_none"),
        "is_none" => Some("is_some"),
        "sqrt" | "abs" | "ln" | "exp" | "rev" => None,
        _ => return None,
    })
}

/// A constant that is near another one.
fn other_number(lit: &Lit) -> Option<String> {
    match lit {
        Lit::Int(int) => {
            let value: u64 = int.base10_parse().ok()?;
            Some(format!("{}{}", value.checked_add(1)?, int.suffix()))
        }
        Lit::Float(float) => {
            let value: f64 = float.base10_parse().ok()?;
            let other = if value == 0.0 { 1.0 } else { 1.5 * value };
            Some(format!("{other:?}{}", float.suffix()))
        }
        Lit::Bool(bool) => Some((!bool.value).to_string()),
        _ => None,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let cfg_test = path.is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test");
        cfg_test || path.is_ident("test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) && item.sig.constness.is_none() {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.constness.is_none() {
            visit::visit_impl_item_fn(self, item);
        }
    }

    // What is evaluated when it is compiled cannot ask which mutant is on.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if let Some(other) = other_operator(&expr.op)
            && !contains_let(&expr.left)
            && !contains_let(&expr.right)
        {
            let mutated = self.replaced(expr.span(), expr.op.span(), other);
            self.add(expr.span(), mutated, Form::Either);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if matches!(expr.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let without = self.source(expr.expr.span()).to_owned();
            self.add(expr.span(), without, Form::Either);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_lit(&mut self, expr: &'ast syn::ExprLit) {
        if let Some(other) = other_number(&expr.lit) {
            self.add(expr.span(), other, Form::Either);
        }
    }

    fn visit_expr_method_call(&mut self, expr: &'ast syn::ExprMethodCall) {
        match other_method(&expr.method.to_string()) {
            Some(Some(name)) => {
                let mutated = self.replaced(expr.span(), expr.method.span(), name);
                self.add(expr.span(), mutated, Form::Either);
            }
            Some(None) if expr.args.is_empty() => {
                let receiver = self.source(expr.receiver.span()).to_owned();
                self.add(expr.span(), receiver, Form::Either);
            }
            _ => {}
        }
        visit::visit_expr_method_call(self, expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && matches!(
                expr,
                Expr::MethodCall(_) | Expr::Call(_) | Expr::Try(_) | Expr::Assign(_)
            )
        {
            self.add(stmt.span(), "left out".into(), Form::Dropped);
        }
        visit::visit_stmt(self, stmt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        let parsed = syn::parse_file(text).unwrap();
        let mut finder = Finder {
            text,
            file: "src/solve/x.rs",
            found: Vec::new(),
        };
        finder.visit_file(&parsed);
        let pairs = finder.found.into_iter().map(|m| (m.original, m.mutated));
        pairs.collect()
    }

    #[test]
    fn sites_of_each_kind() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let text = "fn f(a: f64, b: &[f64]) -> f64 { if a < b.len() as f64 { g(a); } -a.max(0.5) }";
        let sites = found(text);
        for wanted in [
            pair("a < b.len() as f64", "negated"),
            pair("a < b.len() as f64", "a <= b.len() as f64"),
            pair("g(a);", "left out"),
            pair("-a.max(0.5)", "a.max(0.5)"),
            pair("a.max(0.5)", "a.min(0.5)"),
            pair("0.5", "0.75"),
        ] {
            assert!(sites.contains(&wanted), "{wanted:?} in {sites:?}");
        }
        assert_eq!(sites.len(), 6);
    }

    #[test]
    fn nothing_that_is_fixed_when_compiled_or_is_a_test() {
        for text in [
            "const N: usize = 3;",
            "fn f() -> [u8; 4] { [x; 4] }",
            "fn f(x: u8) -> bool { matches!(x, 3) }",
            "fn f(x: u8) { match x { 3 => {} _ => {} } }",
            "#[cfg(test)] mod tests { fn f() -> f64 { 1.0 + 2.0 } }",
            "const fn f() -> usize { 1 + 2 }",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn drawn_sites_do_not_overlap_and_are_spread() {
        let text =
            "fn f(a: f64) -> f64 { (a + 1.0) * (a - 2.0) + if a > 3.0 { 4.0 } else { 5.0 } }";
        let mut all = Vec::new();
        for folder in FOLDERS {
            let parsed = syn::parse_file(text).unwrap();
            let file = format!("src/{folder}/x.rs");
            let mut finder = Finder {
                text,
                file: &file,
                found: Vec::new(),
            };
            finder.visit_file(&parsed);
            all.extend(finder.found);
        }
        for seed in 0..20 {
            let drawn = draw(all.clone(), 4, seed);
            let mut folders: Vec<&str> = drawn.iter().map(Mutant::folder).collect();
            folders.sort_unstable();
            assert_eq!(folders, ["gram", "labels", "methods", "solve"]);
            let many = draw(all.clone(), 100, seed);
            for (a, b) in many.iter().zip(&many[1..]) {
                assert!(a.file != b.file || a.range.end <= b.range.start);
            }
        }
    }
}
