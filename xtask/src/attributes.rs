//! Attributes that decide whether code is compiled for tests only.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ForeignItem, ImplItem, Item, Meta, Stmt, Token, TraitItem};

/// Whether a build without tests leaves out what has these attributes.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("bench"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
        }
        _ => false,
    })
}

/// Whether a condition of `cfg` holds in tests only.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
                return false;
            };
            if list.path.is_ident("all") {
                parts.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(needs_test)
            }
        }
        Meta::NameValue(_) => false,
    }
}

/// The file that a `#[path = "…"]` names.
pub(crate) fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

macro_rules! attributes_of {
    ($name:ident, $type:ident: $($variant:ident)*) => {
        pub(crate) fn $name(syntax: &$type) -> &[Attribute] {
            match syntax {
                $($type::$variant(inner) => &inner.attrs,)*
                _ => &[],
            }
        }
    };
}

attributes_of! {
    of_item, Item:
    Const Enum ExternCrate Fn ForeignMod Impl Macro Mod Static Struct Trait TraitAlias Type Union Use
}
attributes_of! { of_impl_item, ImplItem: Const Fn Type Macro }
attributes_of! { of_trait_item, TraitItem: Const Fn Type Macro }
attributes_of! { of_foreign_item, ForeignItem: Fn Static Type Macro }
attributes_of! {
    of_expr, Expr:
    Array Assign Async Await Binary Block Break Call Cast Closure Const Continue Field ForLoop Group If Index
    Infer Let Lit Loop Macro Match MethodCall Paren Path Range RawAddr Reference Repeat Return Struct Try
    TryBlock Tuple Unary Unsafe While Yield
}

pub(crate) fn of_stmt(stmt: &Stmt) -> &[Attribute] {
    match stmt {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => of_item(item),
        Stmt::Expr(expr, _) => of_expr(expr),
        Stmt::Macro(call) => &call.attrs,
    }
}
