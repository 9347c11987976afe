//! Fields: the table that describes each of them, and [`Field`], by which a rule names one.

mod columns;
mod table;

pub use crate::names::{ValueFormat, ValueNames};
pub use crate::stream_part::StreamPart;
pub use columns::{
    BareMeaning, FieldGroup, FieldPlace, Implies, MappedPart, Payload, StatefulUses, ValueKind, Writable,
    ones,
};
pub use table::{FIELDS, FieldId, FieldInfo};

/// A field as a rule names it: the row, and for `tcp-opt KIND` the kind.
///
/// A kind that has a row of its own is always named by that row, so that equal fields compare equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field {
    /// The row.
    pub id: FieldId,
    /// The option's kind for [`FieldPlace::NamedOption`], else 0.
    pub kind: u8,
}

impl Field {
    /// A field that needs no kind.
    pub const fn new(id: FieldId) -> Field {
        Field { id, kind: 0 }
    }

    /// The TCP option of a kind, under its own row if it has one.
    pub fn option(kind: u8) -> Field {
        FIELDS
            .iter()
            .find(|f| f.place == FieldPlace::Option(kind))
            .map_or(Field { id: FieldId::TcpOptKind, kind }, |f| Field::new(f.id))
    }

    /// The kind, if the field is a TCP option of one.
    pub fn option_kind(self) -> Option<u8> {
        match self.info().place {
            FieldPlace::Option(kind) => Some(kind),
            FieldPlace::NamedOption => Some(self.kind),
            FieldPlace::Key { .. }
            | FieldPlace::AnyOption
            | FieldPlace::Payload(_)
            | FieldPlace::Connection
            | FieldPlace::Stream(_) => None,
        }
    }

    /// The part of a connection's bytes that the field is; `None` for a field of packets.
    pub fn stream_part(self) -> Option<StreamPart> {
        if let FieldPlace::Stream(part) = self.info().place { Some(part) } else { None }
    }

    /// The field's row.
    #[inline]
    pub fn info(self) -> &'static FieldInfo {
        self.id.info()
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.info().place == FieldPlace::NamedOption {
            return write!(f, "tcp-opt {}", self.kind);
        }
        f.write_str(self.info().name)
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
