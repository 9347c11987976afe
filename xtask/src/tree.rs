//! The modules of a target: their files, and the names that they define.
//!
//! A [`Tree`] is loaded from the root of a target along its `mod` items, with or without the items that only
//! tests compile. Blocks of functions that have items of their own become modules, too, while their function
//! is visited.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use proc_macro2::Span;
use syn::{Item, ItemMacro, ItemMod, ItemUse};

use crate::attributes::{is_test, of_foreign_item, of_item, path_attribute};
use crate::macros::{self, Rules};
use crate::path::{CodePath, is_reexport, leaves, name_of};

/// A file in [`Tree::files`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct FileId(usize);

/// A module in [`Tree::modules`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ModuleId(usize);

/// What a name means in a module.
pub(crate) enum Meaning {
    /// An item other than a module and a macro, with its file.
    Item(FileId),
    /// A `macro_rules!`, with its file.
    Macro(FileId),
    Module(ModuleId),
    Import(CodePath),
}

pub(crate) struct Definition {
    pub(crate) meaning: Meaning,
    /// Whether modules that are no descendants may use the name, too.
    pub(crate) visible: bool,
}

/// A `use path::*`.
pub(crate) struct Glob {
    pub(crate) path: CodePath,
    pub(crate) visible: bool,
    pub(crate) line: usize,
    /// Whether a name has been found through it.
    pub(crate) found: Cell<bool>,
}

pub(crate) struct Module {
    pub(crate) file: FileId,
    /// The parent; for the module of a block, the module that has the block.
    pub(crate) parent: Option<ModuleId>,
    pub(crate) is_block: bool,
    pub(crate) names: HashMap<String, Vec<Definition>>,
    pub(crate) globs: Vec<Glob>,
    /// Names that a macro invocation in the module may define.
    pub(crate) from_macros: HashSet<String>,
}

/// The files of a workspace that have been parsed.
#[derive(Default)]
pub struct Sources {
    parsed: HashMap<PathBuf, Rc<syn::File>>,
}

/// A file and the module that it is.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) module: ModuleId,
    pub(crate) syntax: Rc<syn::File>,
}

pub(crate) struct Tree {
    pub(crate) files: Vec<Loaded>,
    pub(crate) modules: Vec<Module>,
    /// Whether it has the items that only tests compile.
    pub(crate) with_tests: bool,
    /// The inline modules, by where their names stand.
    inline: HashMap<(FileId, usize, usize), ModuleId>,
    /// The `macro_rules!` that have been read, by name.
    rules: HashMap<String, Rules>,
}

/// Where the files of child modules lie.
struct Places {
    /// Those of `mod name;`.
    children: PathBuf,
    /// Those of `#[path = "…"] mod name;`.
    paths: PathBuf,
}

impl Sources {
    fn parse(&mut self, path: &Path) -> Result<Rc<syn::File>> {
        if let Some(file) = self.parsed.get(path) {
            return Ok(file.clone());
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = syn::parse_file(&text)
            .map_err(|error| anyhow::anyhow!("{}:{}: {error}", path.display(), error.span().start().line))?;
        let file = Rc::new(file);
        self.parsed.insert(path.to_owned(), file.clone());
        Ok(file)
    }
}

impl Tree {
    /// Loads the target whose root is `root`.
    pub(crate) fn load(sources: &mut Sources, root: &Path, with_tests: bool) -> Result<Self> {
        let mut tree = Self {
            files: Vec::new(),
            modules: Vec::new(),
            with_tests,
            inline: HashMap::new(),
            rules: HashMap::new(),
        };
        tree.load_file(sources, root, None, true)?;
        Ok(tree)
    }

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    pub(crate) fn path_of(&self, file: FileId) -> &Path {
        &self.files[file.0].path
    }

    /// The root module, which `crate` names.
    pub(crate) fn root(&self) -> ModuleId {
        ModuleId(0)
    }

    /// The inline module whose name stands at `span` in `file`.
    pub(crate) fn inline_module(&self, file: FileId, span: Span) -> Option<ModuleId> {
        self.inline.get(&place(file, span)).copied()
    }

    /// The modules that are no blocks, with their ids.
    pub(crate) fn named_modules(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        let modules = self.modules.iter().enumerate().map(|(at, module)| (ModuleId(at), module));
        modules.filter(|(_, module)| !module.is_block)
    }

    /// Makes a module of the items of a block.
    pub(crate) fn add_block<'a>(
        &mut self,
        parent: ModuleId,
        items: impl Iterator<Item = &'a Item>,
    ) -> ModuleId {
        let block = self.push(self.module(parent).file, Some(parent), true);
        self.define(block, items.filter(|item| !matches!(item, Item::Mod(_))));
        block
    }

    /// Whether the tree leaves out what has these attributes.
    pub(crate) fn leaves_out(&self, attributes: &[syn::Attribute]) -> bool {
        !self.with_tests && is_test(attributes)
    }

    fn push(&mut self, file: FileId, parent: Option<ModuleId>, is_block: bool) -> ModuleId {
        self.modules.push(Module {
            file,
            parent,
            is_block,
            names: HashMap::new(),
            globs: Vec::new(),
            from_macros: HashSet::new(),
        });
        ModuleId(self.modules.len() - 1)
    }

    /// Loads a file and what it declares. `owns_directory`: its children lie beside it, as those of `mod.rs`
    /// do.
    fn load_file(
        &mut self,
        sources: &mut Sources,
        path: &Path,
        parent: Option<ModuleId>,
        owns_directory: bool,
    ) -> Result<Option<ModuleId>> {
        let syntax = sources.parse(path)?;
        if self.leaves_out(&syntax.attrs) {
            return Ok(None);
        }
        let module = self.push(FileId(self.files.len()), parent, false);
        self.files.push(Loaded { path: path.to_owned(), module, syntax: syntax.clone() });
        let beside = path.parent().expect("a file lies in a directory").to_owned();
        let children = if owns_directory { beside.clone() } else { path.with_extension("") };
        self.load_items(sources, module, &syntax.items, &Places { children, paths: beside })?;
        Ok(Some(module))
    }

    fn load_items(
        &mut self,
        sources: &mut Sources,
        module: ModuleId,
        items: &[Item],
        places: &Places,
    ) -> Result<()> {
        self.define(module, items.iter());
        let mut declared = HashSet::new();
        for item in items {
            if let Item::Mod(child) = item {
                declared.insert(name_of(&child.ident));
                if !self.leaves_out(&child.attrs) {
                    self.load_child(sources, module, child, places)?;
                }
            }
        }
        for item in items {
            match item {
                Item::Macro(call) if call.ident.is_none() && !self.leaves_out(&call.attrs) => {
                    self.load_declared_by_macro(sources, module, call, places, &mut declared)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn load_child(
        &mut self,
        sources: &mut Sources,
        parent: ModuleId,
        child: &ItemMod,
        places: &Places,
    ) -> Result<()> {
        let name = name_of(&child.ident);
        let path = path_attribute(&child.attrs);
        let id = if let Some((_, items)) = &child.content {
            let file = self.module(parent).file;
            let id = self.push(file, Some(parent), false);
            self.inline.insert(place(file, child.ident.span()), id);
            let inside = path.map_or_else(|| places.children.join(&name), |path| places.paths.join(path));
            self.load_items(sources, id, items, &Places { children: inside.clone(), paths: inside })?;
            Some(id)
        } else if let Some(path) = path {
            self.load_file(sources, &normal(&places.paths.join(path)), Some(parent), true)?
        } else if let Some((path, owns_directory)) = child_file(&places.children, &name) {
            self.load_file(sources, &path, Some(parent), owns_directory)?
        } else {
            let file = self.path_of(self.module(parent).file).display();
            let line = child.ident.span().start().line;
            bail!("{file}:{line}: module `{name}` has no file in {}", places.children.display());
        };
        if let Some(id) = id {
            self.add(parent, &name, Meaning::Module(id), is_reexport(&child.vis));
        }
        Ok(())
    }

    /// Loads the modules that a `macro_rules!` declares: those that its invocation names, and that have a
    /// file.
    fn load_declared_by_macro(
        &mut self,
        sources: &mut Sources,
        module: ModuleId,
        call: &ItemMacro,
        places: &Places,
        declared: &mut HashSet<String>,
    ) -> Result<()> {
        if !self.rules_of(call).is_some_and(|rules| rules.modules) {
            return Ok(());
        }
        for name in macros::idents(&call.mac.tokens) {
            let Some((path, owns_directory)) = child_file(&places.children, &name) else { continue };
            if declared.insert(name.clone())
                && let Some(id) = self.load_file(sources, &path, Some(module), owns_directory)?
            {
                self.add(module, &name, Meaning::Module(id), true);
            }
        }
        Ok(())
    }

    fn add(&mut self, module: ModuleId, name: &str, meaning: Meaning, visible: bool) {
        let names = &mut self.modules[module.0].names;
        names.entry(name.to_owned()).or_default().push(Definition { meaning, visible });
    }

    /// Enters the names that items define, other than those of modules.
    fn define<'a>(&mut self, module: ModuleId, items: impl Iterator<Item = &'a Item>) {
        let file = self.module(module).file;
        for item in items {
            if self.leaves_out(of_item(item)) {
                continue;
            }
            let (ident, visibility) = match item {
                Item::Const(item) => (&item.ident, &item.vis),
                Item::Enum(item) => (&item.ident, &item.vis),
                Item::Fn(item) => (&item.sig.ident, &item.vis),
                Item::Static(item) => (&item.ident, &item.vis),
                Item::Struct(item) => (&item.ident, &item.vis),
                Item::Trait(item) => (&item.ident, &item.vis),
                Item::TraitAlias(item) => (&item.ident, &item.vis),
                Item::Type(item) => (&item.ident, &item.vis),
                Item::Union(item) => (&item.ident, &item.vis),
                Item::Macro(item) => {
                    self.define_macro(module, item);
                    continue;
                }
                Item::ExternCrate(item) => {
                    let path = CodePath { absolute: true, segments: vec![name_of(&item.ident)] };
                    let name = item.rename.as_ref().map_or(&item.ident, |(_, name)| name);
                    self.add(module, &name_of(name), Meaning::Import(path), is_reexport(&item.vis));
                    continue;
                }
                Item::ForeignMod(block) => {
                    for item in &block.items {
                        let (ident, visibility) = match item {
                            syn::ForeignItem::Fn(item) => (&item.sig.ident, &item.vis),
                            syn::ForeignItem::Static(item) => (&item.ident, &item.vis),
                            syn::ForeignItem::Type(item) => (&item.ident, &item.vis),
                            _ => continue,
                        };
                        if !self.leaves_out(of_foreign_item(item)) {
                            self.add(module, &name_of(ident), Meaning::Item(file), is_reexport(visibility));
                        }
                    }
                    continue;
                }
                Item::Use(item) => {
                    self.import(module, item);
                    continue;
                }
                _ => continue,
            };
            self.add(module, &name_of(ident), Meaning::Item(file), is_reexport(visibility));
        }
    }

    fn import(&mut self, module: ModuleId, item: &ItemUse) {
        let visible = is_reexport(&item.vis);
        for leaf in leaves(item) {
            if leaf.is_glob {
                let glob = Glob { path: leaf.path, visible, line: leaf.line, found: Cell::new(false) };
                self.modules[module.0].globs.push(glob);
            } else if let Some(name) = leaf.name {
                self.add(module, &name, Meaning::Import(leaf.path), visible);
            }
        }
    }

    /// Enters a `macro_rules!`, or the names that an invocation may define.
    fn define_macro(&mut self, module: ModuleId, item: &ItemMacro) {
        let file = self.module(module).file;
        if let Some(ident) = &item.ident {
            let name = name_of(ident);
            if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                self.add(self.root(), &name, Meaning::Macro(file), true);
            }
            self.add(module, &name, Meaning::Macro(file), true);
            self.rules.insert(name, macros::rules(&item.mac.tokens));
        } else {
            let mut names = macros::idents(&item.mac.tokens);
            names.extend(self.rules_of(item).into_iter().flat_map(|rules| rules.fixed.iter().cloned()));
            self.modules[module.0].from_macros.extend(names);
        }
    }

    fn rules_of(&self, call: &ItemMacro) -> Option<&Rules> {
        self.rules.get(&name_of(&call.mac.path.segments.last()?.ident))
    }
}

/// The file of the module `name` whose parent's children lie in `directory`, and whether its children lie
/// beside it.
fn child_file(directory: &Path, name: &str) -> Option<(PathBuf, bool)> {
    let alone = directory.join(format!("{name}.rs"));
    if alone.is_file() {
        return Some((alone, false));
    }
    let inside = directory.join(name).join("mod.rs");
    inside.is_file().then_some((inside, true))
}

/// The path without `..`, so that a file has one path.
fn normal(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn place(file: FileId, span: Span) -> (FileId, usize, usize) {
    let start = span.start();
    (file, start.line, start.column)
}
