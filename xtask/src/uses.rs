//! What each file of a target uses: other files, and external crates.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Lit, Meta, QSelf, Stmt};

use crate::attributes::{of_expr, of_foreign_item, of_impl_item, of_item, of_stmt, of_trait_item};
use crate::macros::{self, Parsed, TokenPath};
use crate::names::{Kind, Named, is_defined, resolve, textual_macros};
use crate::path::{CodePath, is_reexport, leaves, name_of};
use crate::tree::{FileId, ModuleId, Tree};

/// The first place where a file uses another.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// By file, the files that it uses.
pub(crate) type FileUses = BTreeMap<PathBuf, BTreeMap<PathBuf, Example>>;

/// What a target uses.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) files: FileUses,
    /// The first segments of paths that the target does not define.
    pub(crate) external: BTreeSet<String>,
}

/// Collects what the files of a target use.
pub(crate) fn collect(tree: Tree) -> Uses {
    let files: Vec<_> = tree.files.iter().map(|file| (file.module, file.syntax.clone())).collect();
    let uses = Uses {
        files: tree.files.iter().map(|file| (file.path.clone(), BTreeMap::new())).collect(),
        external: BTreeSet::new(),
    };
    let module = tree.root();
    let mut collector = Collector { tree, uses, module, scopes: Vec::new(), in_example: false };
    for (module, syntax) in files {
        collector.module = module;
        collector.in_example = false;
        collector.visit_file(&syntax);
    }
    collector.count_silent_globs();
    collector.uses
}

/// Names that a function, a block or generic parameters bind.
#[derive(Default)]
struct Scope {
    values: HashSet<String>,
    types: HashSet<String>,
}

struct Collector {
    tree: Tree,
    uses: Uses,
    /// The module whose code is being visited.
    module: ModuleId,
    scopes: Vec<Scope>,
    /// Whether the documentation is within an example.
    in_example: bool,
}

impl Collector {
    fn file(&self) -> FileId {
        self.tree.module(self.module).file
    }

    fn add_use(&mut self, from: FileId, to: FileId, line: usize, path: &CodePath) {
        let (from, to) = (self.tree.path_of(from), self.tree.path_of(to));
        if from != to {
            let uses = self.uses.files.entry(from.to_owned()).or_default();
            let example = Example { line, path: path.text() };
            let known = uses.entry(to.to_owned()).or_insert_with(|| example.clone());
            if line < known.line {
                *known = example;
            }
        }
    }

    /// Counts the use of what `path` names.
    fn use_path(&mut self, path: &CodePath, line: usize, kind: Kind) {
        let Some(first) = path.segments.first() else { return };
        if first == "Self" || self.is_bound(first, path) {
            return;
        }
        for named in resolve(&self.tree, self.module, path, kind) {
            match named {
                Named::Item(file) => self.add_use(self.file(), file, line, path),
                Named::External(name) if path.segments.len() > 1 || path.absolute => {
                    self.uses.external.insert(name);
                }
                _ => {}
            }
        }
    }

    fn is_bound(&self, first: &String, path: &CodePath) -> bool {
        let single = path.segments.len() == 1;
        !path.absolute
            && self
                .scopes
                .iter()
                .any(|scope| scope.types.contains(first) || (single && scope.values.contains(first)))
    }

    fn bind(&mut self, name: String) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.values.insert(name);
        }
    }

    fn in_scope(&mut self, visit: impl FnOnce(&mut Self)) {
        self.scopes.push(Scope::default());
        visit(self);
        self.scopes.pop();
    }

    /// The path of an expression, a type or a pattern, perhaps `<Type as Trait>::name`.
    fn use_qualified(&mut self, qself: Option<&QSelf>, path: &syn::Path) {
        let Some(qself) = qself else {
            self.visit_path(path);
            return;
        };
        self.visit_type(&qself.ty);
        if qself.position > 0 {
            let mut named = CodePath::new(path);
            named.segments.truncate(qself.position);
            self.use_path(&named, start_of(path), Kind::Other);
        }
        visit::visit_path(self, path);
    }

    fn use_macro(&mut self, path: &syn::Path) {
        let named = CodePath::new(path);
        let line = start_of(path);
        let found = resolve(&self.tree, self.module, &named, Kind::Macro);
        if named.segments.len() == 1 && found.iter().all(|named| matches!(named, Named::External(_))) {
            let files = textual_macros(&self.tree, self.module, &named.segments[0]);
            if let [file] = files[..] {
                self.add_use(self.file(), file, line, &named);
            }
        } else {
            self.use_path(&named, line, Kind::Macro);
        }
    }

    fn use_tokens(&mut self, tokens: &TokenStream) {
        for TokenPath { path, line } in macros::paths(tokens) {
            // In a module in which a macro makes items, any unknown name may be one of these.
            if let [first, _, ..] = &path.segments[..] {
                self.uses.external.insert(first.clone());
            }
            self.use_path(&path, line, Kind::Any);
        }
    }

    fn use_parsed(&mut self, parsed: Option<Parsed>, tokens: &TokenStream) {
        match parsed {
            Some(Parsed::Expressions(list)) => list.iter().for_each(|expr| self.visit_expr(expr)),
            Some(Parsed::Match(value, pattern)) => {
                self.visit_expr(&value);
                self.in_scope(|collector| collector.visit_pat(&pattern));
            }
            Some(Parsed::Statements(statements)) => self.visit_statements(&statements),
            Some(Parsed::Items(items)) => items.iter().for_each(|item| self.visit_item(item)),
            None => self.use_tokens(tokens),
        }
    }

    /// Paths in the texts of an attribute, as in `#[serde(with = "crate::hex")]`.
    fn use_texts(&mut self, tokens: &TokenStream) {
        for token in tokens.clone() {
            match token {
                TokenTree::Group(group) => self.use_texts(&group.stream()),
                TokenTree::Literal(literal) => {
                    let line = line_of(literal.span());
                    if let Lit::Str(text) = Lit::new(literal)
                        && let Ok(path) = text.parse::<syn::Path>()
                        && path.segments.len() > 1
                    {
                        self.use_path(&CodePath::new(&path), line, Kind::Other);
                    }
                }
                _ => {}
            }
        }
    }

    /// Visits the statements of a block, whose items are in scope in all of it.
    fn visit_statements(&mut self, statements: &[Stmt]) {
        let items = statements.iter().filter_map(|statement| match statement {
            Stmt::Item(item) => Some(item),
            _ => None,
        });
        let outer = self.module;
        if items.clone().next().is_some() {
            self.module = self.tree.add_block(outer, items);
        }
        self.in_scope(|collector| statements.iter().for_each(|statement| collector.visit_stmt(statement)));
        self.module = outer;
    }

    /// Counts a private glob through which no name was found: it imports traits, for their methods.
    fn count_silent_globs(&mut self) {
        let mut found = Vec::new();
        for (id, module) in self.tree.named_modules() {
            for glob in module.globs.iter().filter(|glob| !glob.visible && !glob.found.get()) {
                for named in resolve(&self.tree, id, &glob.path, Kind::Other) {
                    if let Named::Module(target) = named {
                        found.push((
                            module.file,
                            self.tree.module(target).file,
                            glob.line,
                            glob.path.clone(),
                        ));
                    }
                }
            }
        }
        for (from, to, line, mut path) in found {
            path.segments.push("*".to_owned());
            self.add_use(from, to, line, &path);
        }
    }

    /// Notes the crates that an example in the documentation names: it is a test.
    fn read_documentation(&mut self, text: &str) {
        if !self.tree.with_tests {
            return;
        }
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                self.in_example = !self.in_example;
            } else if self.in_example {
                let mut words: Vec<&str> = line.split("::").collect();
                words.pop();
                for word in words {
                    let start = word.rfind(|char: char| !char.is_alphanumeric() && char != '_');
                    self.uses.external.insert(word[start.map_or(0, |at| at + 1)..].to_owned());
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if self.tree.leaves_out(of_item(item)) {
            return;
        }
        let outer = std::mem::replace(&mut self.scopes, vec![Scope::default()]);
        visit::visit_item(self, item);
        self.scopes = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outer = self.module;
        if let Some(module) = self.tree.inline_module(self.file(), item.ident.span()) {
            self.module = module;
        }
        visit::visit_item_mod(self, item);
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(item) {
            let kind = if leaf.is_glob { Kind::Other } else { Kind::Any };
            for named in resolve(&self.tree, self.module, &leaf.path, kind) {
                match named {
                    Named::External(name) => {
                        self.uses.external.insert(name);
                    }
                    Named::Item(file) if !is_reexport(&item.vis) => {
                        self.add_use(self.file(), file, leaf.line, &leaf.path);
                    }
                    _ => {}
                }
            }
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.uses.external.insert(name_of(&item.ident));
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        if item.ident.is_some() {
            self.use_tokens(&item.mac.tokens);
        } else {
            self.use_macro(&item.mac.path);
            self.use_parsed(macros::parse_items(&item.mac.tokens), &item.mac.tokens);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.use_macro(&call.path);
        self.use_parsed(macros::parse_inside(&call.tokens), &call.tokens);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.use_tokens(tokens);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            if let Meta::NameValue(pair) = &attribute.meta
                && let Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) = &pair.value
            {
                self.read_documentation(&text.value());
            }
            return;
        }
        let path = CodePath::new(attribute.path());
        if path.segments.len() > 1 {
            self.use_path(&path, start_of(attribute.path()), Kind::Macro);
        }
        match &attribute.meta {
            Meta::List(list) => {
                self.use_tokens(&list.tokens);
                self.use_texts(&list.tokens);
            }
            Meta::NameValue(pair) => self.visit_expr(&pair.value),
            Meta::Path(_) => {}
        }
    }

    // The scope of a visibility is a module, not a use of it.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !self.tree.leaves_out(of_impl_item(item)) {
            self.in_scope(|collector| visit::visit_impl_item(collector, item));
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if !self.tree.leaves_out(of_trait_item(item)) {
            self.in_scope(|collector| visit::visit_trait_item(collector, item));
        }
    }

    fn visit_foreign_item(&mut self, item: &'ast syn::ForeignItem) {
        if !self.tree.leaves_out(of_foreign_item(item)) {
            self.in_scope(|collector| visit::visit_foreign_item(collector, item));
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !self.tree.leaves_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !self.tree.leaves_out(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !self.tree.leaves_out(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        if !self.tree.leaves_out(&field.attrs) {
            visit::visit_field_pat(self, field);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if !self.tree.leaves_out(of_stmt(statement)) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if !self.tree.leaves_out(of_expr(expr)) {
            visit::visit_expr(self, expr);
        }
    }

    fn visit_generics(&mut self, generics: &'ast syn::Generics) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.types.extend(generics.type_params().map(|param| name_of(&param.ident)));
            scope.types.extend(generics.const_params().map(|param| name_of(&param.ident)));
        }
        visit::visit_generics(self, generics);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.visit_statements(&block.stmts);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let Some(init) = &local.init {
            self.visit_local_init(init);
        }
        self.visit_pat(&local.pat);
    }

    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        self.visit_expr(&expr.expr);
        self.visit_pat(&expr.pat);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.in_scope(|collector| {
            collector.visit_expr(&expr.cond);
            collector.visit_block(&expr.then_branch);
        });
        if let Some((_, otherwise)) = &expr.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.in_scope(|collector| visit::visit_expr_while(collector, expr));
    }

    fn visit_expr_for_loop(&mut self, expr: &'ast syn::ExprForLoop) {
        self.visit_expr(&expr.expr);
        self.in_scope(|collector| {
            collector.visit_pat(&expr.pat);
            collector.visit_block(&expr.body);
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.in_scope(|collector| visit::visit_expr_closure(collector, closure));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !self.tree.leaves_out(&arm.attrs) {
            self.in_scope(|collector| visit::visit_arm(collector, arm));
        }
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = name_of(&pattern.ident);
        // A constant, a unit struct or a variant looks like a binding.
        if name.starts_with(|first: char| first.is_uppercase()) && is_defined(&self.tree, self.module, &name)
        {
            let path = CodePath { absolute: false, segments: vec![name] };
            self.use_path(&path, line_of(pattern.ident.span()), Kind::Other);
        } else {
            self.bind(name);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_path(&mut self, expr: &'ast syn::ExprPath) {
        self.use_qualified(expr.qself.as_ref(), &expr.path);
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        self.use_qualified(path.qself.as_ref(), &path.path);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.use_path(&CodePath::new(path), start_of(path), Kind::Other);
        visit::visit_path(self, path);
    }
}

fn line_of(span: Span) -> usize {
    span.start().line
}

fn start_of(path: &syn::Path) -> usize {
    path.segments.first().map_or(0, |segment| line_of(segment.ident.span()))
}
