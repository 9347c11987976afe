//! What the tokens of macros tell without an expansion.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Item, Pat, Stmt, Token};

use crate::path::{CodePath, name_of};

/// What a `macro_rules!` defines where it is invoked.
#[derive(Default)]
pub(crate) struct Rules {
    /// The names that it defines whatever its arguments are.
    pub(crate) fixed: BTreeSet<String>,
    /// Whether it declares modules whose names are arguments.
    pub(crate) modules: bool,
}

/// A path among tokens, and its line.
pub(crate) struct TokenPath {
    pub(crate) path: CodePath,
    pub(crate) line: usize,
}

/// Tokens that have the form of other code.
pub(crate) enum Parsed {
    Expressions(Vec<Expr>),
    /// `matches!(value, pattern)`
    Match(Box<Expr>, Box<Pat>),
    Statements(Vec<Stmt>),
    Items(Vec<Item>),
}

/// Parses the tokens of an invocation within a function.
pub(crate) fn parse_inside(tokens: &TokenStream) -> Option<Parsed> {
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    if let Ok(list) = list.parse2(tokens.clone()) {
        return Some(Parsed::Expressions(list.into_iter().collect()));
    }
    let repeated = Punctuated::<Expr, Token![;]>::parse_terminated;
    if let Ok(list) = repeated.parse2(tokens.clone()) {
        return Some(Parsed::Expressions(list.into_iter().collect()));
    }
    if let Ok((value, pattern)) = matched.parse2(tokens.clone()) {
        return Some(Parsed::Match(Box::new(value), Box::new(pattern)));
    }
    Block::parse_within.parse2(tokens.clone()).ok().map(Parsed::Statements)
}

/// Parses the tokens of an invocation that stands where items stand.
pub(crate) fn parse_items(tokens: &TokenStream) -> Option<Parsed> {
    let file: syn::File = syn::parse2(tokens.clone()).ok()?;
    Some(Parsed::Items(file.items))
}

fn matched(input: ParseStream<'_>) -> syn::Result<(Expr, Pat)> {
    let value = input.parse()?;
    input.parse::<Token![,]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    let guarded = if input.peek(Token![if]) {
        let if_token = input.parse()?;
        let guard = input.parse()?;
        Pat::Guard(syn::PatGuard { attrs: Vec::new(), pat: Box::new(pattern), if_token, guard })
    } else {
        pattern
    };
    input.parse::<Option<Token![,]>>()?;
    Ok((value, guarded))
}

/// The names among tokens.
pub(crate) fn idents(tokens: &TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => found.push(name_of(&ident)),
            TokenTree::Group(group) => found.extend(idents(&group.stream())),
            _ => {}
        }
    }
    found
}

/// Reads the body of a `macro_rules!`.
pub(crate) fn rules(body: &TokenStream) -> Rules {
    let mut rules = Rules::default();
    read_rules(body, &mut rules);
    rules
}

fn read_rules(body: &TokenStream, rules: &mut Rules) {
    const KEYWORDS: &[&str] =
        &["const", "enum", "fn", "mod", "mut", "static", "struct", "trait", "type", "union"];
    let mut keyword = None;
    for token in body.clone() {
        match &token {
            TokenTree::Ident(ident) if keyword.is_some() => {
                rules.fixed.insert(name_of(ident));
            }
            TokenTree::Group(group) => read_rules(&group.stream(), rules),
            TokenTree::Punct(punct) if punct.as_char() == '$' && keyword == Some("mod") => {
                rules.modules = true
            }
            _ => {}
        }
        keyword = match &token {
            TokenTree::Ident(ident) => KEYWORDS.iter().find(|keyword| ident == *keyword).copied(),
            _ => None,
        };
    }
}

/// The paths among tokens: those with several segments, and single names of types and constants.
pub(crate) fn paths(tokens: &TokenStream) -> Vec<TokenPath> {
    let mut found = Vec::new();
    scan(tokens, &mut found);
    found
}

fn scan(tokens: &TokenStream, found: &mut Vec<TokenPath>) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => {
                scan(&group.stream(), found);
                at += 1;
            }
            TokenTree::Ident(first) if starts_path(&tokens, at, first) => {
                at = scan_path(&tokens, at, first, found);
            }
            _ => at += 1,
        }
    }
}

/// Whether the name at `at` can be the first segment of a path: it is not a field, a method, a metavariable or a later segment.
fn starts_path(tokens: &[TokenTree], at: usize, first: &Ident) -> bool {
    let is = |distance, char| is_punct(at.checked_sub(distance).and_then(|at| tokens.get(at)), char);
    let is_range = is(1, '.') && is(2, '.');
    let is_member = is(1, '.') && !is_range;
    let is_metavariable = is(1, '$') && first != "crate";
    let is_later_segment = is(1, ':') && is(2, ':') && !is_absolute(tokens, at);
    !is_member && !is_metavariable && !is_later_segment && !is(1, '\'')
}

/// Whether the `::` before `at` follows no segment of a path.
fn is_absolute(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(3).map(|at| &tokens[at]);
    at >= 2
        && is_separator(tokens, at - 2)
        && !matches!(before, Some(TokenTree::Ident(_) | TokenTree::Group(_)))
        && !is_punct(before, '>')
}

fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

/// Reads the path at `at`; returns where the tokens after it begin.
fn scan_path(tokens: &[TokenTree], mut at: usize, first: &Ident, found: &mut Vec<TokenPath>) -> usize {
    let line = first.span().start().line;
    let absolute = is_absolute(tokens, at);
    let mut segments = vec![name_of(first)];
    at += 1;
    while is_separator(tokens, at) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(next)) => {
                segments.push(name_of(next));
                at += 3;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                scan_use_group(&segments, &group.stream(), found);
                return at + 3;
            }
            _ => break,
        }
    }
    if segments.len() > 1 || segments[0].starts_with(|first: char| first.is_uppercase()) {
        found.push(TokenPath { path: CodePath { absolute, segments }, line });
    }
    at
}

/// The paths of `prefix::{…}`.
fn scan_use_group(prefix: &[String], tokens: &TokenStream, found: &mut Vec<TokenPath>) {
    let mut inner = Vec::new();
    let mut starts = true;
    for token in tokens.clone() {
        match &token {
            TokenTree::Ident(ident) if starts => inner.push((name_of(ident), ident.span().start().line)),
            _ => {}
        }
        starts = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
    }
    for (name, line) in inner {
        let segments = prefix.iter().cloned().chain([name]).collect();
        found.push(TokenPath { path: CodePath { absolute: false, segments }, line });
    }
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}
