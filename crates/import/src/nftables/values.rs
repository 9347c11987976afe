//! What the values of fields select: numbers of dimensions, addresses, families.

use super::json::{Expr, SetObject, TaggedExpr};
use super::names::{self, ValueNames};
use crate::cube::{Dim, Family, PacketCube};
use crate::named_set::{Member, ValuesOf};
use crate::netfilter::Reason;
use crate::set;
use mmb_policy::Intervals;
use mmb_policy::field::ones;
use std::net::IpAddr;

/// What the values of a field select.
pub(super) enum FieldValues {
    /// Numbers of a dimension: `value << shift` where `mask` has the bits of the field in it, plus `offset`.
    Number {
        dim: Dim,
        shift: u8,
        width: u8,
        offset: u128,
        names: ValueNames,
    },
    Address {
        dim: Dim,
        family: Family,
    },
    Input,
    Output,
    State,
    Direction,
    Status,
    Family,
    /// Whether an address is the host's.
    AddressType {
        dim: Dim,
    },
    /// The fragment offset.
    FragmentOffset,
}

/// The members of a named set of addresses or of ports; `None`: it is of another kind, or has a member that is not known, which is told where a
/// rule asks for it.
pub(super) fn members(set: &SetObject) -> Option<(ValuesOf, Vec<Member>)> {
    let of = match set.kind.as_ref()?.as_str()? {
        "ipv4_addr" => ValuesOf::Addresses(Family::Ip4),
        "ipv6_addr" => ValuesOf::Addresses(Family::Ip6),
        "inet_service" => ValuesOf::Ports,
        _ => return None,
    };
    let port = whole(Dim::DestinationPort, 16, ValueNames::Ports);
    let member = |element: &Expr| {
        let values = match of {
            ValuesOf::Addresses(family) => addresses(element, family),
            ValuesOf::Ports => port.range(element),
        };
        Some((values.ok()?, element.expires_s()))
    };
    Some((of, set.elem.iter().map(member).collect::<Option<_>>()?))
}

impl FieldValues {
    /// A value of a field with numbers.
    pub(super) fn number(&self, expr: &Expr) -> Result<u128, Reason> {
        let FieldValues::Number { names, .. } = self else { return Err("such a value".to_owned()) };
        match expr.value() {
            Expr::Number(n) => Ok((*n).into()),
            Expr::Text(word) => names::number(word, *names).ok_or_else(|| format!("`{word}` is not known")),
            Expr::List(_) | Expr::Tagged(_) | Expr::Other(_) => Err("such a value".to_owned()),
        }
    }

    /// The numbers of the dimension that a value or a range selects.
    pub(super) fn range(&self, expr: &Expr) -> Result<Intervals, Reason> {
        let FieldValues::Number { dim, shift, width, offset, .. } = *self else {
            return Err("such a value".to_owned());
        };
        let values = match expr.tagged() {
            Some(TaggedExpr::Range([first, last])) => {
                Intervals::range(self.number(first)?, self.number(last)?)
            }
            _ => Intervals::one(self.number(expr)?),
        };
        Ok(placed(dim, shift, width, offset, &values))
    }
}

pub(super) fn whole(dim: Dim, width: u8, names: ValueNames) -> FieldValues {
    FieldValues::Number { dim, shift: 0, width, offset: 0, names }
}

pub(super) fn part(dim: Dim, shift: u8, width: u8, names: ValueNames) -> FieldValues {
    FieldValues::Number { dim, shift, width, offset: 0, names }
}

/// Numbers of a dimension of which some bits are in a set, and the others are free.
pub(super) fn placed(dim: Dim, shift: u8, width: u8, offset: u128, values: &Intervals) -> Intervals {
    let values = values.intersect(&Intervals::of_width(width));
    let bits = match dim {
        Dim::Tos => 8,
        Dim::Icmp => 16,
        _whole => {
            return values.as_slice().iter().map(|&(first, last)| (first + offset, last + offset)).collect();
        }
    };
    let above = bits - shift - width;
    let upper = 0..1u128 << above;
    let low = ones(shift);
    upper
        .flat_map(|upper| {
            let base = upper << (shift + width);
            values
                .as_slice()
                .iter()
                .map(move |&(first, last)| (base | first << shift, base | last << shift | low))
        })
        .collect()
}

pub(super) fn words(elements: &[Expr]) -> Result<Vec<&str>, Reason> {
    elements.iter().map(|element| element.text().ok_or_else(|| "a word is expected".to_owned())).collect()
}

/// An address, a prefix or a range.
pub(super) fn addresses(expr: &Expr, family: Family) -> Result<Intervals, Reason> {
    let address = |word: &str| {
        let address: Option<IpAddr> = word.parse().ok();
        let bits = address.and_then(|address| crate::netfilter::bits_in(address, family));
        bits.ok_or_else(|| format!("`{word}` is no address of the family"))
    };
    match expr.tagged() {
        Some(TaggedExpr::Prefix(prefix)) if prefix.len <= family.bits() => {
            Ok(set::prefix(address(&prefix.addr)?, prefix.len, family.bits()))
        }
        Some(TaggedExpr::Range([first, last])) => {
            let end = |expr: &Expr| address(expr.text().ok_or("an address is expected")?);
            Ok(Intervals::range(end(first)?, end(last)?))
        }
        Some(_) => Err("an address is expected".to_owned()),
        None => Ok(Intervals::one(address(expr.text().ok_or("an address is expected")?)?)),
    }
}

/// The packets of an ether type, or of a family by its name.
pub(super) fn of_ether_type(base: &[PacketCube], expr: &Expr) -> Result<Vec<PacketCube>, Reason> {
    let number = match expr.value() {
        Expr::Number(2) => 0x0800,
        Expr::Number(10) => 0x86dd,
        Expr::Number(n) => u128::from(*n),
        other => match other.text() {
            Some("ipv4") => 0x0800,
            Some("ipv6") => 0x86dd,
            Some(word) => names::number(word, ValueNames::EtherTypes)
                .ok_or_else(|| format!("ether type {word}: the rule language has nothing like it"))?,
            None => return Err("an ether type is expected".to_owned()),
        },
    };
    let of_type = Intervals::one(number);
    Ok(base.iter().filter_map(|cube| cube.clone().with(Dim::EtherType, &of_type)).collect())
}
