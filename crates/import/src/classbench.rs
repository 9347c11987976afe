//! Filter sets of ClassBench (Taylor and Turner, INFOCOM 2005): one filter a line, the best first.
//!
//! ```text
//! @src/len dst/len sport-lo : sport-hi dport-lo : dport-hi proto/mask flags/mask
//! ```
//!
//! [`read`] parses a file; [`ClassbenchFilter::constraints`] translates the match of one filter to the rule language. Filters
//! have no action and do not define how they treat packets without a field; [`ClassbenchOptions`] does.

use crate::cube::{Dim, Family, PacketCube};
use crate::draft::{Effect, ImportVerdict, LeftOut, Place, PolicyDraft, Remarks};
use crate::named_set::ImportedSets;
use crate::{language, set};
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::Intervals;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

/// Why a filter has no rules although the language could express it.
const NO_PACKET: &str = "no packet matches, since its protocol has no ports or no flags";

/// Adds the rules of filters to a policy, in their order. `verdict` returns the verdict of the filter with an index.
pub fn add(
    draft: &mut PolicyDraft,
    filters: &[ClassbenchFilter],
    options: ClassbenchOptions,
    verdict: impl Fn(usize) -> ImportVerdict,
) {
    for (index, filter) in filters.iter().enumerate() {
        let verdict = verdict(index);
        let added = filter.constraints(options).and_then(|constraints| {
            if constraints.len() > 1 {
                draft.comment(&format!("line {}: {} rules", filter.line, constraints.len()));
            }
            draft.add(&constraints, verdict.target(Family::Ip4), Remarks::default())
        });
        if let Err(reason) = added {
            let effect = if reason == NO_PACKET { Effect::None } else { verdict.if_left_out() };
            draft.leave_out(LeftOut {
                place: Place::line(filter.line),
                text: filter.to_string(),
                reason,
                effect,
            });
        }
    }
}

/// A filter as written: a packet matches if it matches in every column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassbenchFilter {
    /// Its line, from 1.
    pub line: usize,
    /// Source prefix.
    pub source: Prefix,
    /// Destination prefix, of the same family.
    pub destination: Prefix,
    /// First and last source port; 0 to 65535 matches every packet.
    pub source_ports: (u16, u16),
    /// First and last destination port; 0 to 65535 matches every packet.
    pub destination_ports: (u16, u16),
    /// Protocol.
    pub proto: Masked<u8>,
    /// For TCP the 16 bits with its data offset and flags, for ICMP its type and code; all zero if the column is missing.
    pub flags: Masked<u16>,
}

/// An address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address, as written.
    pub address: IpAddr,
    /// The prefix length in bits.
    pub len: u8,
}

/// A number with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked<T> {
    /// The number.
    pub value: T,
    /// The mask; 0 matches every number.
    pub mask: T,
}

/// The interpretation of filters where the format does not define it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassbenchOptions {
    /// Port ranges match packets that have no ports, instead of none of them.
    pub portless_match: bool,
    /// The upper byte of the TCP flags column holds the flags, instead of the lower one.
    pub flags_in_upper_byte: bool,
}

/// A line that is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ClassbenchError {
    /// The line, from 1.
    pub line: usize,
    message: String,
}

/// Reads a filter set. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The first line that is not a filter.
pub fn read(text: &str) -> Result<Vec<ClassbenchFilter>, ClassbenchError> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            filter(number, line).map_err(|message| ClassbenchError { line: number, message })
        })
        .collect()
}

fn filter(number: usize, line: &str) -> Result<ClassbenchFilter, String> {
    let line = line.strip_prefix('@').ok_or("a filter begins with `@`")?;
    let (source, rest) = line.split_once(char::is_whitespace).ok_or("nothing behind the source address")?;
    let rest = rest.trim_start();
    let (destination, rest) = rest.split_once(char::is_whitespace).ok_or("nothing behind the destination")?;
    let (source, destination) = (prefix(source)?, prefix(destination)?);
    if source.address.is_ipv4() != destination.address.is_ipv4() {
        return Err("the source is of another family than the destination".to_owned());
    }
    // After the addresses, which may be IPv6, colons separate ports, with or without blanks around them.
    let rest = rest.replace(':', " ");
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (ports, masks) =
        words.split_at_checked(4).ok_or("two ranges of ports have to follow the addresses")?;
    let [first_source, last_source, first_destination, last_destination] = ports else {
        return Err("two ranges of ports have to follow the addresses".to_owned());
    };
    let (proto, flags) = match masks {
        [proto] => (proto, None),
        [proto, flags] => (proto, Some(flags)),
        [] => return Err("the protocol is missing".to_owned()),
        [_, _, more, ..] => return Err(format!("`{more}` stands behind the last column")),
    };
    let (value, mask) = masked(proto, u8::MAX.into())?;
    let (flag_value, flag_mask) = flags.map_or(Ok((0, 0)), |flags| masked(flags, u16::MAX.into()))?;
    Ok(ClassbenchFilter {
        line: number,
        source,
        destination,
        source_ports: ports_between(first_source, last_source)?,
        destination_ports: ports_between(first_destination, last_destination)?,
        // Both fit in their type: `masked` has checked it.
        proto: Masked { value: value as u8, mask: mask as u8 },
        flags: Masked { value: flag_value as u16, mask: flag_mask as u16 },
    })
}

fn prefix(word: &str) -> Result<Prefix, String> {
    let (address, len) = word.split_once('/').map_or((word, None), |(address, len)| (address, Some(len)));
    let address: IpAddr = address.parse().map_err(|_| format!("`{address}` is not an address"))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(bits), str::parse).map_err(|_| format!("`{word}` has no good prefix length"))?;
    if len > bits {
        return Err(format!("`{word}` has a prefix length above {bits}"));
    }
    Ok(Prefix { address, len })
}

fn ports_between(first: &str, last: &str) -> Result<(u16, u16), String> {
    let port = |word: &str| word.parse().map_err(|_| format!("`{word}` is not a port"));
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(format!("the ports {first} to {last} are in the wrong order"));
    }
    Ok((first, last))
}

/// A value and its mask, in hexadecimal or decimal, both at most `max`.
fn masked(word: &str, max: u32) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let number = hex.map_or_else(|| text.parse(), |hex| u32::from_str_radix(hex, 16));
        number.ok().filter(|&n| n <= max).ok_or_else(|| format!("`{text}` is not a number up to {max:#x}"))
    };
    let (value, mask) = word.split_once('/').ok_or_else(|| format!("`{word}` is not a value and a mask"))?;
    Ok((number(value)?, number(mask)?))
}

impl ClassbenchFilter {
    /// The constraints of the rules that match the same packets as the filter. Most filters need one rule, some several, in any
    /// order.
    ///
    /// # Errors
    /// Why there are no such rules.
    pub fn constraints(&self, reading: ClassbenchOptions) -> Result<Vec<String>, String> {
        let cubes = self.cubes(reading);
        if cubes.is_empty() {
            return Err(NO_PACKET.to_owned());
        }
        let mut rules = Vec::with_capacity(cubes.len());
        for cube in &cubes {
            rules.extend(language::constraints(cube, &ImportedSets::default())?);
        }
        Ok(rules)
    }

    fn cubes(&self, reading: ClassbenchOptions) -> Vec<PacketCube> {
        let family = if self.source.address.is_ipv4() { Family::Ip4 } else { Family::Ip6 };
        let protos = set::masked(self.proto.value.into(), self.proto.mask.into(), 8);
        let base = PacketCube::all(family)
            .with(Dim::Source, &self.source.set())
            .and_then(|cube| cube.with(Dim::Destination, &self.destination.set()))
            .and_then(|cube| cube.with(Dim::Proto, &protos));
        let Some(base) = base else { return Vec::new() };
        let asks_ports =
            [self.source_ports, self.destination_ports].iter().any(|&ports| ports != (0, u16::MAX));
        let asks_flags = self.flags.mask != 0;
        if !asks_ports && !asks_flags {
            return vec![base];
        }
        let with_ports = |cube: PacketCube| {
            let set = |(first, last): (u16, u16)| Intervals::range(first.into(), last.into());
            cube.with(Dim::SourcePort, &set(self.source_ports))?
                .with(Dim::DestinationPort, &set(self.destination_ports))
        };
        let tcp = base
            .clone()
            .with_transport(TCP)
            .and_then(with_ports)
            .and_then(|cube| self.tcp_flags(cube, reading));
        let udp = base.clone().with_transport(UDP).and_then(with_ports).filter(|_| !asks_flags);
        let icmp = Intervals::one(family.icmp().into());
        let portless = Dim::Proto.all(family).minus(&Intervals::of(&[TCP.into(), UDP.into()]));
        let other = match (asks_ports && !reading.portless_match, asks_flags) {
            (true, _) => None,
            (false, false) => base.with(Dim::Proto, &portless),
            (false, true) => base.with(Dim::Proto, &icmp).and_then(|cube| {
                let types = set::masked(self.flags.value.into(), self.flags.mask.into(), 16);
                cube.with_transport(family.icmp())?.with(Dim::Icmp, &types)
            }),
        };
        [tcp, udp, other].into_iter().flatten().collect()
    }

    fn tcp_flags(&self, cube: PacketCube, reading: ClassbenchOptions) -> Option<PacketCube> {
        let Masked { value, mask } = self.flags;
        let (value, mask) =
            if reading.flags_in_upper_byte { (value.swap_bytes(), mask.swap_bytes()) } else { (value, mask) };
        let bits = |shift: u32, bits: u8| set::masked((value >> shift).into(), (mask >> shift).into(), bits);
        cube.with(Dim::Offset, &bits(12, 4))?.with(Dim::Reserved, &bits(8, 4))?.with(Dim::Flags, &bits(0, 8))
    }
}

impl Display for ClassbenchFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Prefix { address, len } = self.source;
        write!(f, "@{address}/{len} {}/{}", self.destination.address, self.destination.len)?;
        for (first, last) in [self.source_ports, self.destination_ports] {
            write!(f, " {first} : {last}")?;
        }
        write!(f, " {:#04x}/{:#04x}", self.proto.value, self.proto.mask)?;
        write!(f, " {:#06x}/{:#06x}", self.flags.value, self.flags.mask)
    }
}

impl Prefix {
    fn set(self) -> Intervals {
        match self.address {
            IpAddr::V4(address) => set::prefix(address.to_bits().into(), self.len, 32),
            IpAddr::V6(address) => set::prefix(address.to_bits(), self.len, 128),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(line: &str, reading: ClassbenchOptions) -> Result<Vec<String>, String> {
        read(line).expect("a filter")[0].constraints(reading)
    }

    #[track_caller]
    fn is(line: &str, expected: &[&str]) {
        assert_eq!(rules(line, ClassbenchOptions::default()).expect("rules"), expected);
    }

    #[test]
    fn columns_are_split_by_tabs_or_blanks() {
        let one = read("@10.1.2.3/8\t192.0.2.1/32\t0 : 65535\t1521 : 1521\t0x06/0xFF\t0x1000/0x1000\t")
            .expect("good");
        let two = read("@10.1.2.3/8 192.0.2.1 0:65535  1521:1521 6/255 0x1000/0x1000").expect("good");
        assert_eq!(one, two);
        assert_eq!(one[0].source, Prefix { address: [10, 1, 2, 3].into(), len: 8 });
        assert_eq!(one[0].destination_ports, (1521, 1521));
        assert_eq!(one[0].flags, Masked { value: 0x1000, mask: 0x1000 });
        let bare = read("\n# a comment\n@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4 0x11/0xFF\n").expect("good");
        assert_eq!((bare[0].line, bare[0].flags), (3, Masked { value: 0, mask: 0 }));
    }

    #[test]
    fn lines_that_are_no_filters_are_reported() {
        for (line, message) in [
            ("1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4 6/255", "begins with `@`"),
            ("@1.2.3/32 5.6.7.8/32 1 : 2 3 : 4 6/255", "`1.2.3` is not an address"),
            ("@1.2.3.4/33 5.6.7.8/32 1 : 2 3 : 4 6/255", "prefix length above 32"),
            ("@1.2.3.4/32 ::/0 1 : 2 3 : 4 6/255", "another family"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3", "two ranges of ports"),
            ("@1.2.3.4/32 5.6.7.8/32 2 : 1 3 : 4 6/255", "wrong order"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 65536 6/255", "`65536` is not a port"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4", "protocol is missing"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4 6", "not a value and a mask"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4 0x106/0xFF", "`0x106` is not a number up to 0xff"),
            ("@1.2.3.4/32 5.6.7.8/32 1 : 2 3 : 4 6/255 0/0 7", "`7` stands behind"),
        ] {
            let error = read(&format!("# first\n{line}\n")).expect_err(line);
            assert!(error.to_string().contains(message) && error.line == 2, "{line}: {error}");
        }
    }

    #[test]
    fn one_filter_is_one_rule_where_the_protocol_is_known() {
        is(
            "@10.1.2.3/8 192.0.2.1/32 0 : 65535 1521 : 1522 0x06/0xFF",
            &["ip-saddr 10.0.0.0/8 ip-daddr 192.0.2.1 tcp-dport 1521-1522"],
        );
        is("@0.0.0.0/0 0.0.0.0/0 53 : 53 0 : 65535 0x11/0xFF", &["net-proto ip4 udp-sport 53"]);
        is("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x2F/0xFF", &["net-proto ip4 ip-proto gre"]);
        is("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00", &["net-proto ip4"]);
        is("@2001:db8::/32 ::/0 0 : 65535 80 : 80 0x06/0xFF", &["ip6-saddr 2001:db8::/32 tcp-dport 80"]);
        is("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x10/0xFE", &["net-proto ip4 ip-proto 16-17"]);
    }

    #[test]
    fn ports_of_any_protocol_are_those_of_tcp_and_udp() {
        let line = "@0.0.0.0/0 10.0.0.0/8 53 : 53 0 : 65535 0x00/0x00";
        is(line, &["ip-daddr 10.0.0.0/8 tcp-sport 53", "ip-daddr 10.0.0.0/8 udp-sport 53"]);
        let all = rules(line, ClassbenchOptions { portless_match: true, ..ClassbenchOptions::default() })
            .expect("rules");
        assert_eq!(all[2..], ["ip-daddr 10.0.0.0/8 ip-proto != {tcp, udp}"]);
        let igmp = "@0.0.0.0/0 10.0.0.0/8 53 : 53 0 : 65535 0x02/0xFF";
        assert!(rules(igmp, ClassbenchOptions::default()).is_err());
        let all = rules(igmp, ClassbenchOptions { portless_match: true, ..ClassbenchOptions::default() })
            .expect("rules");
        assert_eq!(all, ["ip-daddr 10.0.0.0/8 ip-proto igmp"]);
    }

    #[test]
    fn flags_are_bits_of_tcp_or_the_type_of_icmp() {
        let with = |columns: &str| format!("@1.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 {columns}");
        is(&with("0x06/0xFF 0x5002/0xF012"), &["ip-saddr 1.0.0.0/8 tcp-offset 5 tcp-syn ! tcp-ack"]);
        is(&with("0x06/0xFF 0x1000/0x1000"), &["ip-saddr 1.0.0.0/8 tcp-offset {1, 3, 5, 7, 9, 11, 13, 15}"]);
        is(&with("0x01/0xFF 0x0800/0xFF00"), &["ip-saddr 1.0.0.0/8 icmp-type 8"]);
        is(&with("0x01/0xFF 0x0304/0xFFFF"), &["ip-saddr 1.0.0.0/8 icmp-type 3 icmp-code 4"]);
        let both = rules(&with("0x00/0x00 0x0002/0x0002"), ClassbenchOptions::default()).expect("rules");
        assert_eq!(both[0], "ip-saddr 1.0.0.0/8 tcp-syn");
        assert!(both[1].starts_with("ip-saddr 1.0.0.0/8 icmp-code {2-3, 6-7, "), "{both:?}");
        assert!(rules(&with("0x11/0xFF 0x0002/0x0002"), ClassbenchOptions::default()).is_err());
        let upper = ClassbenchOptions { flags_in_upper_byte: true, ..ClassbenchOptions::default() };
        let setup = rules(&with("0x06/0xFF 0x0200/0x1200"), upper).expect("rules");
        assert_eq!(setup, ["ip-saddr 1.0.0.0/8 tcp-syn ! tcp-ack"]);
    }
}
