//! What a hook sees of packets that arrive. Behind the translation of destinations, packets have another destination than on the
//! wire, and replies to a connection whose source is translated have the initiator's address back. A policy matches packets as they
//! arrive, so that a cube at a hook becomes a cube of received packets: the constraints on translated fields are decided by the
//! translation, where it has one answer for all packets of the class.

use crate::cube::{DESTINATION_TRANSLATED, Dim, Family, PacketCube, SOURCE_TRANSLATED, states};
use mmb_policy::{CtState, Intervals};
use std::collections::BTreeSet;

/// Packets that arrive, and are translated alike.
#[derive(Clone, Debug)]
pub(super) struct PacketClass {
    /// The packets as they arrive.
    pub(super) cube: PacketCube,
    /// What the hooks see instead of some fields: one of these numbers.
    pub(super) seen: Vec<(Dim, Intervals)>,
    /// The possible values of [`Dim::Translated`] by connection states, which together are all states.
    pub(super) translated: Vec<(Intervals, Intervals)>,
    /// The packets are for the host itself behind the translation.
    pub(super) is_local: bool,
}

/// Received packets that a cube at a hook stands for.
#[derive(Debug)]
pub(super) enum Received {
    /// Exactly these.
    All(PacketCube),
    /// Some of these, which the language cannot tell from the others.
    Some(PacketCube, &'static str),
}

/// The reason for [`Received::Some`] about addresses and ports.
const HIDDEN: &str = "the translation hides which of these packets it is about: they have another address or port when they arrive";

/// The reason for [`Received::Some`] about `SNAT` and `DNAT` as states.
const UNKNOWN_TRANSLATION: &str = "replies do not tell whether their connection is translated";

impl PacketClass {
    /// The packets of a family that are not translated, as far as the hooks see. Some connections may have another destination, or
    /// another source, for packets of other classes.
    pub(super) fn untranslated(family: Family, destinations: bool, sources: bool) -> PacketClass {
        let maybe = |is_there: bool, bit: u128| if is_there { vec![0, bit] } else { vec![0] };
        let by_source = maybe(sources, SOURCE_TRANSLATED);
        let by_both: Vec<u128> = maybe(destinations, DESTINATION_TRANSLATED)
            .iter()
            .flat_map(|destination| by_source.iter().map(move |source| destination | source))
            .collect();
        let replies = states(&[CtState::EstablishedReply, CtState::RelatedReply]);
        let none = states(&[CtState::Untracked, CtState::Invalid]);
        let others = states(&[CtState::New, CtState::Established, CtState::Related]);
        PacketClass {
            cube: PacketCube::all(family),
            seen: Vec::new(),
            translated: vec![
                (none, Intervals::one(0)),
                (others, Intervals::of(&by_source)),
                (replies, Intervals::of(&by_both)),
            ],
            is_local: false,
        }
    }

    /// The packets that look to a hook like those of a cube.
    pub(super) fn received(&self, cube: &PacketCube) -> Vec<Received> {
        let parts: Vec<(PacketCube, Option<&'static str>)> = match cube.asked(Dim::Translated) {
            None => vec![(cube.clone(), None)],
            Some(asked) => {
                self.translated.iter().filter_map(|part| by_translation(cube, asked, part)).collect()
            }
        };
        parts.into_iter().filter_map(|(part, reason)| self.arriving(part, reason)).collect()
    }

    fn arriving(&self, mut cube: PacketCube, mut reason: Option<&'static str>) -> Option<Received> {
        for (dim, seen) in &self.seen {
            let Some(asked) = cube.asked(*dim) else { continue };
            let inside = asked.intersect(seen);
            if inside.is_empty() {
                return None;
            }
            if inside != *seen {
                reason = Some(HIDDEN);
            }
            cube = cube.without(*dim);
        }
        let cube = self.cube.and(&cube)?;
        Some(match reason {
            None => Received::All(cube),
            Some(reason) => Received::Some(possible(cube)?, reason),
        })
    }
}

/// The packets of a cube that exist: only ICMP errors are related to a connection.
fn possible(cube: PacketCube) -> Option<PacketCube> {
    if cube.allowed(Dim::Proto).contains(cube.family.icmp().into()) {
        return Some(cube);
    }
    let related = states(&[CtState::Related, CtState::RelatedReply]);
    let others = Dim::State.all(cube.family).minus(&related);
    cube.with(Dim::State, &others)
}

/// The received packets that look to a hook like those of some cubes, where all rules that match a packet count: in each special class
/// as the hook sees its packets, and in the general classes the others. `hidden` gets the reasons for which some are not told apart.
pub(super) fn received_exactly(
    cubes: &[PacketCube],
    special: &[PacketClass],
    general: &[PacketClass],
    hidden: &mut BTreeSet<&'static str>,
) -> Vec<PacketCube> {
    let mut found: Vec<PacketCube> = Vec::new();
    for cube in cubes {
        let mut exact = |class: &PacketClass| {
            let mut exact = Vec::new();
            for part in class.received(cube) {
                match part {
                    Received::All(part) => exact.push(part),
                    Received::Some(_, reason) => {
                        hidden.insert(reason);
                    }
                }
            }
            exact
        };
        let mut rest: Vec<PacketCube> = general.iter().flat_map(&mut exact).collect();
        for class in special {
            let as_seen = if class.is_local { Vec::new() } else { exact(class) };
            let as_received: Vec<PacketCube> = rest.iter().filter_map(|part| part.and(&class.cube)).collect();
            if as_seen != as_received {
                subtract(&mut rest, &class.cube);
                found.extend(as_seen);
            }
        }
        found.extend(rest);
    }
    found
}

/// Whether some packets of a cube are among others.
pub(super) fn is_among(cube: &PacketCube, cubes: &[PacketCube]) -> bool {
    cubes.iter().any(|have| have.overlaps(cube))
}

/// Subtracts the packets of a cube from others.
pub(super) fn subtract(cubes: &mut Vec<PacketCube>, cube: &PacketCube) {
    if cubes.iter().any(|have| have.overlaps(cube)) {
        *cubes = cubes.iter().flat_map(|have| have.minus(cube)).collect();
    }
}

/// A part of a cube that asks for translations, without the question: the packets in some states, whose translations are known.
fn by_translation(
    cube: &PacketCube,
    asked: &Intervals,
    (of_states, possible): &(Intervals, Intervals),
) -> Option<(PacketCube, Option<&'static str>)> {
    let inside = asked.intersect(possible);
    if inside.is_empty() {
        return None;
    }
    let part = cube.clone().without(Dim::Translated).with(Dim::State, of_states)?;
    Some((part, (inside != *possible).then_some(UNKNOWN_TRANSLATION)))
}
