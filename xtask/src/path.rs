//! Paths and imports as they are written.

use syn::{Ident, ItemUse, UseTree, Visibility};

/// A path in the code, without the generic arguments of its segments.
#[derive(Clone, Debug)]
pub(crate) struct CodePath {
    /// Whether it begins with `::`, and so names an external crate.
    pub(crate) absolute: bool,
    pub(crate) segments: Vec<String>,
}

impl CodePath {
    pub(crate) fn new(path: &syn::Path) -> Self {
        let segments = path.segments.iter().map(|segment| name_of(&segment.ident)).collect();
        Self { absolute: path.leading_colon.is_some(), segments }
    }

    pub(crate) fn text(&self) -> String {
        format!("{}{}", if self.absolute { "::" } else { "" }, self.segments.join("::"))
    }
}

/// The name, without the `r#` of a keyword.
pub(crate) fn name_of(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// One name that a `use` item imports.
pub(crate) struct Leaf {
    pub(crate) path: CodePath,
    pub(crate) line: usize,
    /// The name that it has here; none for `*` and `_`.
    pub(crate) name: Option<String>,
    pub(crate) is_glob: bool,
}

/// The names that a `use` item imports.
pub(crate) fn leaves(item: &ItemUse) -> Vec<Leaf> {
    let mut found = Vec::new();
    let prefix = CodePath { absolute: item.leading_colon.is_some(), segments: Vec::new() };
    walk_use(&item.tree, &prefix, &mut found);
    found
}

fn walk_use(tree: &UseTree, prefix: &CodePath, found: &mut Vec<Leaf>) {
    let mut push = |ident: &Ident, renamed: Option<&Ident>| {
        let mut path = prefix.clone();
        let original = name_of(ident);
        // `use module::{self}` imports the module.
        if original != "self" || path.segments.is_empty() {
            path.segments.push(original);
        }
        let name = renamed.map(name_of).or_else(|| path.segments.last().cloned());
        let name = name.filter(|name| name != "_");
        found.push(Leaf { path, line: ident.span().start().line, name, is_glob: false });
    };
    match tree {
        UseTree::Path(path) => {
            let mut longer = prefix.clone();
            longer.segments.push(name_of(&path.ident));
            walk_use(&path.tree, &longer, found);
        }
        UseTree::Name(name) => push(&name.ident, None),
        UseTree::Rename(rename) => push(&rename.ident, Some(&rename.rename)),
        UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            found.push(Leaf { path: prefix.clone(), line, name: None, is_glob: true });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| walk_use(tree, prefix, found)),
    }
}

/// Whether a `use` item with this visibility only re-exports names. Re-exports do not count as uses.
pub(crate) fn is_reexport(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Inherited => false,
        Visibility::Public(_) => true,
        Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
    }
}
