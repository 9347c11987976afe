//! Resolves paths to the files that define what they name, through imports, re-exports and globs.
//!
//! The rules are those of the compiler, without its namespaces for types and values: a name that stands for a
//! type and for a function stands for both.

use crate::path::CodePath;
use crate::prelude::is_prelude;
use crate::tree::{FileId, Meaning, Module, ModuleId, Tree};

/// What a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// An item, or a part of an item, that a file defines.
    Item(FileId),
    Module(ModuleId),
    /// Something of the crate that the code knows by this name, or of the standard library.
    External(String),
}

/// Whether a path names a macro.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Macro,
    Other,
    Any,
}

/// Which definitions a search takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Items, modules and imports.
    Written,
    /// Names among the tokens of macro invocations.
    FromMacros,
}

/// An import among those of a module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Import {
    Name(usize),
    Glob(usize),
}

/// One question to the tree.
struct Query<'a> {
    tree: &'a Tree,
    /// The module whose code has the path.
    from: ModuleId,
    kind: Kind,
    /// The imports that are being followed: an import does not lead through itself.
    pending: Vec<(ModuleId, Import, String)>,
}

/// What `path` in the code of `from` names.
pub(crate) fn resolve(tree: &Tree, from: ModuleId, path: &CodePath, kind: Kind) -> Vec<Named> {
    let mut query = Query { tree, from, kind, pending: Vec::new() };
    query.resolve(from, path)
}

/// Whether `module` or a module around it, up to its file, defines `name`.
pub(crate) fn is_defined(tree: &Tree, module: ModuleId, name: &str) -> bool {
    let mut query = Query { tree, from: module, kind: Kind::Other, pending: Vec::new() };
    !query.around(module, name, Kind::Other, Search::Written).is_empty()
}

/// The files whose `macro_rules!` of this name can be in scope without an import.
pub(crate) fn textual_macros(tree: &Tree, from: ModuleId, name: &str) -> Vec<FileId> {
    let defined = |module: &Module| {
        module.names.get(name).into_iter().flatten().find_map(|definition| match definition.meaning {
            Meaning::Macro(file) => Some(file),
            _ => None,
        })
    };
    let mut module = Some(from);
    while let Some(id) = module {
        if let Some(file) = defined(tree.module(id)) {
            return vec![file];
        }
        module = tree.module(id).parent;
    }
    let mut found: Vec<FileId> = tree.named_modules().filter_map(|(_, module)| defined(module)).collect();
    found.dedup();
    found
}

/// The module that is no block around `module`.
fn named_module(tree: &Tree, mut module: ModuleId) -> ModuleId {
    while tree.module(module).is_block {
        module = tree.module(module).parent.expect("a block lies in a module");
    }
    module
}

fn parent(tree: &Tree, module: ModuleId) -> Option<ModuleId> {
    tree.module(named_module(tree, module)).parent.map(|parent| named_module(tree, parent))
}

impl Query<'_> {
    /// What a path in the code of `from` names. Unknown names of a module are items of its file, which a
    /// macro made.
    fn resolve(&mut self, from: ModuleId, path: &CodePath) -> Vec<Named> {
        let Some((first, mut rest)) = path.segments.split_first() else {
            return Vec::new();
        };
        if path.absolute {
            return vec![Named::External(first.clone())];
        }
        let kind = |rest: &[String], query: &Self| if rest.is_empty() { query.kind } else { Kind::Other };
        let mut named = match first.as_str() {
            "crate" => vec![Named::Module(self.tree.root())],
            "self" => vec![Named::Module(named_module(self.tree, from))],
            "super" => {
                let mut module = parent(self.tree, from);
                while rest.first().is_some_and(|segment| segment == "super") {
                    rest = &rest[1..];
                    module = module.and_then(|module| parent(self.tree, module));
                }
                module.map(Named::Module).into_iter().collect()
            }
            name => {
                let mut found = self.around(from, name, kind(rest, self), Search::Written);
                if found.is_empty() && !is_prelude(name) {
                    found = self.around(from, name, kind(rest, self), Search::FromMacros);
                }
                if found.is_empty() { vec![Named::External(name.to_owned())] } else { found }
            }
        };
        while let Some((segment, later)) = rest.split_first() {
            let kind = kind(later, self);
            // A path leads through modules, enums and types. A function of the same name has no parts.
            let leads = |named: &Named| !matches!(named, Named::Item(_));
            if named.iter().any(leads) {
                named.retain(leads);
            }
            named = self.step(&named, segment, kind);
            rest = later;
        }
        named
    }

    fn step(&mut self, named: &[Named], segment: &str, kind: Kind) -> Vec<Named> {
        let mut found = Vec::new();
        for named in named {
            let Named::Module(module) = named else {
                push(&mut found, named.clone());
                continue;
            };
            let mut inside = self.within(*module, segment, kind, Search::Written);
            if inside.is_empty() {
                inside = self.within(*module, segment, kind, Search::FromMacros);
            }
            if inside.is_empty() {
                inside = vec![Named::Item(self.tree.module(*module).file)];
            }
            for named in inside {
                push(&mut found, named);
            }
        }
        found
    }

    /// What a name means in `module`, or else in the blocks and the module around it.
    fn around(&mut self, module: ModuleId, name: &str, kind: Kind, search: Search) -> Vec<Named> {
        let mut module = module;
        loop {
            let found = self.within(module, name, kind, search);
            if !found.is_empty() || !self.tree.module(module).is_block {
                return found;
            }
            module = self.tree.module(module).parent.expect("a block lies in a module");
        }
    }

    /// What a name means in a module: by its own items and imports, or else through its globs.
    fn within(&mut self, id: ModuleId, name: &str, kind: Kind, search: Search) -> Vec<Named> {
        let module = self.tree.module(id);
        let mut found = Vec::new();
        match search {
            Search::Written => {
                for (at, definition) in module.names.get(name).into_iter().flatten().enumerate() {
                    if !definition.visible && !self.sees_private(id) {
                        continue;
                    }
                    match &definition.meaning {
                        Meaning::Item(file) if kind != Kind::Macro => push(&mut found, Named::Item(*file)),
                        Meaning::Macro(file) if kind != Kind::Other => push(&mut found, Named::Item(*file)),
                        Meaning::Module(child) if kind != Kind::Macro => {
                            push(&mut found, Named::Module(*child))
                        }
                        Meaning::Import(path) => {
                            let named = self.follow((id, Import::Name(at), name), path, kind);
                            named.into_iter().for_each(|named| push(&mut found, named));
                        }
                        _ => {}
                    }
                }
            }
            Search::FromMacros if module.from_macros.contains(name) => found.push(Named::Item(module.file)),
            Search::FromMacros => {}
        }
        if !found.is_empty() {
            return found;
        }
        for (at, glob) in module.globs.iter().enumerate() {
            if !glob.visible && !self.sees_private(id) {
                continue;
            }
            for named in self.follow((id, Import::Glob(at), name), &glob.path, Kind::Other) {
                if let Named::Module(target) = named {
                    self.pending.push((id, Import::Glob(at), name.to_owned()));
                    let inside = self.within(target, name, kind, search);
                    self.pending.pop();
                    if !inside.is_empty() {
                        glob.found.set(true);
                    }
                    inside.into_iter().for_each(|named| push(&mut found, named));
                }
            }
        }
        found
    }

    /// What the path of an import names, for whoever may see the import.
    fn follow(
        &mut self,
        (module, import, name): (ModuleId, Import, &str),
        path: &CodePath,
        kind: Kind,
    ) -> Vec<Named> {
        let key = (module, import, name.to_owned());
        if self.pending.contains(&key) {
            return Vec::new();
        }
        self.pending.push(key);
        let before = (std::mem::replace(&mut self.from, module), std::mem::replace(&mut self.kind, kind));
        let named = self.resolve(module, path);
        (self.from, self.kind) = before;
        self.pending.pop();
        named
    }

    /// Whether the code of the query lies in `module`, and so sees its private names.
    fn sees_private(&self, module: ModuleId) -> bool {
        let mut inner = Some(self.from);
        while let Some(id) = inner {
            if id == module {
                return true;
            }
            inner = self.tree.module(id).parent;
        }
        false
    }
}

fn push(found: &mut Vec<Named>, named: Named) {
    if !found.contains(&named) {
        found.push(named);
    }
}
