//! TCP options, compared with a list of options in a `Vec`.

use crate::common::{HEADROOM, Seen, edit, edit_wire};
use mmb_packet::LinkType;
use mmb_policy::rule::Write;
use mmb_policy::{Field, Target};
use mmb_rewrite::NotApplied;
use mmb_testkit::frame::tcp_option;
use mmb_testkit::{Checksum, Frame, Ip4, Ip6, Tcp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

/// The options of a header without padding, and the malformed rest.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    options: Vec<(u8, Vec<u8>)>,
    tail: Vec<u8>,
}

impl Model {
    /// The list, and the padding kinds in the area.
    fn read(area: &[u8]) -> (Model, Vec<u8>) {
        let (mut model, mut padding, mut at) = (Model::default(), Vec::new(), 0);
        while let Some(&kind) = area.get(at) {
            if kind < 2 {
                padding.push(kind);
                at += 1;
                if kind == 0 {
                    break;
                }
                continue;
            }
            let len = area.get(at + 1).map_or(0, |len| usize::from(*len));
            if len < 2 || at + len > area.len() {
                model.tail = area[at..].to_vec();
                break;
            }
            model.options.push((kind, area[at + 2..at + len].to_vec()));
            at += len;
        }
        (model, padding)
    }

    fn bytes(&self) -> Vec<u8> {
        let options = self.options.iter().map(|(kind, data)| tcp_option(*kind, data));
        options.chain([self.tail.clone()]).collect::<Vec<_>>().concat()
    }

    fn shape(&self) -> Vec<(u8, usize)> {
        self.options.iter().map(|(kind, data)| (*kind, data.len())).collect()
    }
}

/// The new area, and how often targets were not applied: space, width, fragment.
fn rewritten(area: &[u8], rules: &[Vec<Target>], fragment: bool) -> (Vec<u8>, [u64; 3]) {
    let (loaded, padding) = Model::read(area);
    let (mut now, mut is_rewritten, mut refused) = (loaded.clone(), false, [0; 3]);
    for targets in rules {
        let mut kept = false;
        for target in targets {
            let mut next = now.clone();
            match target {
                Target::Strip(kind) if *kind < 2 => is_rewritten |= padding.contains(kind),
                Target::Strip(kind) => next.options.retain(|option| option.0 != *kind),
                Target::Keep(_) if kept => {}
                Target::Keep(_) => {
                    kept = true;
                    next.options.retain(|option| targets.contains(&Target::Keep(option.0)));
                    next.tail.clear();
                }
                Target::StripAll => {
                    is_rewritten |= !area.is_empty();
                    next = Model::default();
                }
                Target::AddOption(kind, data) => next.options.push((*kind, data.clone())),
                Target::Mod(field, Write::Bytes(data)) => {
                    for option in
                        next.options.iter_mut().filter(|option| Some(option.0) == field.option_kind())
                    {
                        option.1.clone_from(data);
                    }
                }
                Target::Mod(field, Write::Number(number)) => {
                    let mut narrow = false;
                    for option in
                        next.options.iter_mut().filter(|option| Some(option.0) == field.option_kind())
                    {
                        let wide = [vec![0; 24], number.to_be_bytes().to_vec()].concat();
                        let (above, data) = wide.split_at(wide.len() - option.1.len());
                        if above.iter().any(|byte| *byte != 0) {
                            narrow = true;
                        } else {
                            option.1 = data.to_vec();
                        }
                    }
                    refused[1] += u64::from(narrow);
                }
                Target::Drop(_) | Target::Reject(_) | Target::Limit(_) | Target::Accept => {}
                Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {}
                Target::Log(_) | Target::Alert(_) | Target::Close | Target::Digest => {}
                Target::Edit(_) | Target::Helper(_) => {}
            }
            let (len, before) = (next.bytes().len(), now.bytes().len());
            if len > before && len > 40 {
                refused[0] += 1;
            } else if len > before && fragment && len > area.len() {
                refused[2] += 1;
            } else {
                now = next;
            }
        }
    }
    if !is_rewritten && now == loaded {
        return (area.to_vec(), refused);
    }
    let mut bytes = now.bytes();
    if !is_rewritten && now.tail == loaded.tail && now.shape() == loaded.shape() {
        return (in_place(area, &now), refused);
    }
    bytes.resize(if fragment { area.len() } else { bytes.len().next_multiple_of(4) }, 0);
    (bytes, refused)
}

/// The area with the options' data replaced at their places.
fn in_place(area: &[u8], now: &Model) -> Vec<u8> {
    let mut area = area.to_vec();
    let mut at = 0;
    for (_, data) in &now.options {
        while area[at] == 1 {
            at += 1;
        }
        area[at + 2..at + 2 + data.len()].copy_from_slice(data);
        at += 2 + data.len();
    }
    area
}

fn area() -> impl Strategy<Value = Vec<u8>> {
    let option = (2u8..6, vec(any::<u8>(), 0..9)).prop_map(|(kind, data)| tcp_option(kind, &data));
    let piece = prop_oneof![
        8 => option,
        3 => Just(vec![1]),
        1 => Just(vec![0]),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..8).prop_map(|pieces| {
        let mut area = pieces.concat();
        area.resize(area.len().next_multiple_of(4), 0);
        area.truncate(40);
        area
    })
}

fn target() -> impl Strategy<Value = Target> {
    let kind = || 2u8..6;
    let data = || prop_oneof![6 => vec(any::<u8>(), 0..9), 1 => vec(any::<u8>(), 0..45)];
    let number = prop_oneof![0..300u128, any::<u64>().prop_map(u128::from)];
    prop_oneof![
        3 => (kind(), number).prop_map(|(kind, number)| Target::Mod(Field::option(kind), Write::Number(number))),
        3 => (kind(), data()).prop_map(|(kind, data)| Target::Mod(Field::option(kind), Write::Bytes(data))),
        3 => (kind(), data()).prop_map(|(kind, data)| Target::AddOption(kind, data)),
        3 => (0u8..6).prop_map(Target::Strip),
        1 => Just(Target::StripAll),
        1 => (0u8..6).prop_map(Target::Keep),
    ]
}

fn assert_moved(before: &Seen, after: &Seen, area: &[u8]) {
    let grown = area.len() as i64 - before.options().len() as i64;
    assert_eq!(after.options(), area);
    assert_eq!(after.bytes[after.layout.payload.into()..], before.bytes[before.layout.payload.into()..]);
    assert_eq!(i64::from(after.layout.end), i64::from(before.layout.end) + grown);
    assert_eq!(after.layout.ip, before.layout.ip);
    assert_eq!(after.error(), before.error());
    assert!(after.header_is_sound());
    // Parsed again, the packet agrees with the layout.
    let read = edit_wire(LinkType::Ethernet, &after.bytes, 0, &[]).expect("still a sound packet");
    assert_eq!(read.before.layout, after.layout);
}

proptest! {
    #[test]
    fn options_are_rebuilt_like_a_list(
        area in area(),
        rules in vec(vec(target(), 1..4), 1..4),
        (six, fragment) in any::<(bool, bool)>(),
        payload in vec(any::<u8>(), 0..5),
        off in prop_oneof![Just(0u16), any::<u16>()],
    ) {
        let fragment = fragment && !six;
        let tcp = Tcp { checksum: Checksum::Off(off), ..Tcp::default() }.raw_options(&area).payload(&payload);
        let frame = if six {
            Ip6::new(Upper::Tcp(tcp)).frame()
        } else {
            Ip4 { flags: u8::from(fragment), ..Ip4::new(Upper::Tcp(tcp)) }.frame().vlan(1)
        };
        let frame = frame.trailer(b"trailer");
        let edited = edit_wire(frame.link, &frame.bytes(), HEADROOM, &rules).expect("a sound packet");
        let (area, [space, width, refused]) = rewritten(&area, &rules, fragment);
        assert_moved(&edited.before, &edited.after, &area);
        let mut expected = edited.not_applied.0.map(|_| 0);
        expected[..3].copy_from_slice(&[space, width, refused]);
        prop_assert_eq!(edited.not_applied.0, expected);
    }
}

fn mss(number: u128) -> Target {
    Target::Mod(Field::option(2), Write::Number(number))
}

fn area_after(options: &[u8], targets: &[Target]) -> Vec<u8> {
    edit(&Tcp::default().raw_options(options).over_ip4(), targets).after.options().to_vec()
}

#[test]
fn a_new_value_leaves_padding_where_it_is() {
    let area = [1, 2, 4, 5, 180, 1, 3, 3];
    assert_eq!(area_after(&[&area[..], &[7]].concat(), &[mss(1400)]), [1, 2, 4, 5, 120, 1, 3, 3, 7, 0, 0, 0]);
}

#[test]
fn stripping_closes_the_gap() {
    let area = [2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 0, 0];
    assert_eq!(area_after(&area, &[Target::Strip(3)]), [2, 4, 5, 180, 4, 2, 0, 0]);
    assert_eq!(area_after(&area, &[Target::Keep(2), Target::Keep(3)]), [2, 4, 5, 180, 3, 3, 7, 0]);
    assert_eq!(area_after(&area, &[Target::StripAll]), []);
    assert_eq!(area_after(&area, &[Target::Strip(9)]), area);
    assert_eq!(area_after(&area, &[Target::Strip(1)]), [2, 4, 5, 180, 3, 3, 7, 4, 2, 0, 0, 0]);
}

#[test]
fn padding_is_nothing_that_a_whitelist_removes() {
    let area = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    assert_eq!(area_after(&area, &[Target::Keep(8)]), area);
}

#[test]
fn a_malformed_tail_stays_unless_a_whitelist_removes_it() {
    let area = [2, 4, 5, 180, 1, 3, 99, 7];
    assert_eq!(area_after(&area, &[Target::Strip(2)]), [3, 99, 7, 0]);
    assert_eq!(area_after(&area, &[Target::AddOption(4, vec![])]), [2, 4, 5, 180, 4, 2, 3, 99, 7, 0, 0, 0]);
    assert_eq!(area_after(&area, &[Target::Keep(2)]), [2, 4, 5, 180]);
}

#[test]
fn what_does_not_fit_is_counted_and_the_rest_applied() {
    let full = Tcp::default().option(254, &[7; 34]).over_ip6();
    let targets = [Target::AddOption(3, vec![7]), Target::AddOption(2, vec![5, 180]), mss(0x1_0000)];
    let edited = edit(&full, &targets);
    assert_eq!(edited.only(NotApplied::OptionSpace), 1);
    assert_eq!(edited.after.options()[36..], [3, 3, 7, 0]);

    let narrow = edit(&Tcp::default().option(2, &[5, 180]).over_ip4(), &[mss(0x1_0000)]);
    assert_eq!(narrow.only(NotApplied::OptionWidth), 1);
    assert_eq!(narrow.after.bytes, narrow.before.bytes);
    let absent = edit(&Tcp::default().over_ip4(), &[mss(0x1_0000)]);
    assert_eq!(absent.only(NotApplied::OptionWidth), 0);
}

#[test]
fn a_fragment_keeps_its_length() {
    let first = |options: &[u8]| {
        Ip4 { flags: 1, ..Ip4::new(Upper::Tcp(Tcp::default().raw_options(options))) }.frame()
    };
    let edited = edit(&first(&[2, 4, 5, 180, 4, 2, 0, 0]), &[Target::Strip(2)]);
    assert_eq!(edited.after.options(), [4, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(edited.only(NotApplied::Fragment), 0);
    let edited = edit(&first(&[2, 4, 5, 180]), &[Target::AddOption(4, vec![])]);
    assert_eq!(edited.after.bytes, edited.before.bytes);
    assert_eq!(edited.only(NotApplied::Fragment), 1);
}

#[test]
fn without_room_in_front_nothing_grows() {
    let frame = Tcp::default().over_ip4();
    let rules = [vec![Target::AddOption(2, vec![5, 180])]];
    let edited = edit_wire(frame.link, &frame.bytes(), 3, &rules).expect("a sound packet");
    assert_eq!((edited.only(NotApplied::NoRoom), &edited.after.bytes), (1, &frame.bytes()));
    let edited = edit_wire(frame.link, &frame.bytes(), 4, &rules).expect("a sound packet");
    assert_eq!((edited.only(NotApplied::NoRoom), edited.after.options()), (0, &[2, 4, 5, 180][..]));
}

#[test]
fn an_ip_packet_never_passes_its_length_field() {
    let largest = |over: fn(Tcp) -> Frame, payload| over(Tcp::default().payload(&vec![7; payload]));
    let add = [Target::AddOption(2, vec![5, 180])];
    for (frame, refused) in [
        (largest(Tcp::over_ip4, 65_535 - 40), 1),
        (largest(Tcp::over_ip4, 65_535 - 44), 0),
        (largest(Tcp::over_ip6, 65_535 - 20), 1),
        (largest(Tcp::over_ip6, 65_535 - 24), 0),
    ] {
        let edited = edit(&frame, &add);
        assert_eq!(edited.only(NotApplied::NoRoom), refused);
        assert_eq!(edited.after.error(), Some(0));
    }
}
