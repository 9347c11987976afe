//! Operands that several targets have: fields that they take, options, values.

use crate::diagnostic::{Diagnostic, TextSpan};
use crate::number::number_item;
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemSyntax, ValueSyntax};
use crate::value::MAX_OPTION_DATA_BYTES;
use mmb_policy::field::{FIELDS, Field, FieldId, FieldInfo};
use mmb_policy::rule::NumberItem;

/// The value of a target that takes exactly one.
pub(super) fn one<'v, 't>(
    field: &FieldSyntax<'_>,
    value: &'v ValueSyntax<'t>,
    report: &mut CheckReport<'_>,
) -> Option<&'v ItemSyntax<'t>> {
    match value.items() {
        [item] => Some(item),
        _ => {
            let error = Diagnostic::new(value.span(), "a set cannot be written");
            report.error(error.expected(format!("one value of `{}`", field.field)));
            None
        }
    }
}

/// The one number of a target that takes exactly one.
pub(super) fn one_number(
    field: &FieldSyntax<'_>,
    item: &ItemSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<u128> {
    match number_item(field.field, &field.field, item, report)? {
        NumberItem::One(n) => Some(n),
        NumberItem::Range(..) | NumberItem::Prefix(..) => {
            let error = Diagnostic::new(item.span, "a range or prefix cannot be written");
            report.error(error.expected(format!("one value of `{}`", field.field)));
            None
        }
    }
}

/// Reports that padding is neither added nor written.
pub(super) fn padding(field: &FieldSyntax<'_>, report: &mut CheckReport<'_>) -> bool {
    let is_padding = matches!(field.field.option_kind(), Some(0 | 1));
    if is_padding {
        let message = format!("`{}` is padding: mmb pads by itself", field.field);
        report.error(Diagnostic::new(field.span, message));
    }
    is_padding
}

/// The data of an option that is given as bytes.
pub(super) fn option_data(bytes: &[u8], span: TextSpan, report: &mut CheckReport<'_>) -> Option<Vec<u8>> {
    if bytes.len() > MAX_OPTION_DATA_BYTES {
        let message = format!("{} bytes: no TCP option has more than {MAX_OPTION_DATA_BYTES}", bytes.len());
        report.error(Diagnostic::new(span, message));
        return None;
    }
    Some(bytes.to_vec())
}

/// The kind of the option that a target is about. `or` is what the target takes besides, for errors.
pub(super) fn option_kind(
    field: &FieldSyntax<'_>,
    target: &str,
    or: &str,
    report: &mut CheckReport<'_>,
) -> Option<u8> {
    let kind = field.field.option_kind();
    if kind.is_none() {
        let is_any = field.field == Field::new(FieldId::TcpOpt);
        let message = if is_any {
            format!("`{target}` needs to know which option")
        } else {
            format!("`{target}` does not take `{}`", field.field)
        };
        let or = if is_any { or } else { "" };
        let expected = format!("an option such as `tcp-opt-mss` or `tcp-opt 22`{or}");
        report.error(Diagnostic::new(field.span, message).expected(expected));
    }
    kind
}

/// Reports a field that a stateful target does not take.
pub(super) fn bindable(
    field: &FieldSyntax<'_>,
    target: &str,
    takes: fn(&FieldInfo) -> bool,
    report: &mut CheckReport<'_>,
) -> Option<()> {
    if takes(field.field.info()) {
        return Some(());
    }
    let fields: Vec<_> =
        FIELDS.iter().filter(|info| takes(info)).map(|info| format!("`{}`", info.name)).collect();
    let error = Diagnostic::new(field.span, format!("`{target}` does not take `{}`", field.field));
    report.error(error.expected(format!("one of {}", fields.join(", "))));
    None
}
