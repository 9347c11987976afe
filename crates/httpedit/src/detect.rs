//! Patterns of bodies that are found without being edited.

use crate::output::EditOutput;
use crate::plan::FAILED;
use crate::rule::{HttpRule, HttpRules};
use crate::state::{HttpEditor, Kit, Refusal};
use mmb_http::HttpDirection;
use mmb_scan::{ScanEnd, Scanner};
use std::ops::ControlFlow;

impl HttpEditor {
    /// Whether the body of a message is to be searched; makes its search begin.
    pub(crate) fn begin_detection(
        &mut self,
        kit: &mut Kit<'_>,
        direction: HttpDirection,
        slots: &[u16],
    ) -> Result<bool, Refusal> {
        let Some(set) = &kit.rules.bodies else { return Ok(false) };
        let may_be_met =
            |rule: &HttpRule, slot: u16| slot != FAILED && rule.body_bits & !rule.edit_bit & !slot != 0;
        if !kit.live_rules().zip(slots).any(|(rule, slot)| may_be_met(rule, *slot)) {
            return Ok(false);
        }
        match &mut self.scans[direction as usize] {
            Some(state) => kit.scanner.restart(state),
            none => *none = Some(kit.scanner.open(set).ok_or(Refusal::NoRoom)?),
        }
        Ok(true)
    }

    /// Searches the next bytes of content, which were not searched. Tells the rules that they make met, and up to which byte: `offset_of` says where
    /// content lies.
    pub(crate) fn detect(
        &mut self,
        (rules, live, scanner): (&HttpRules, &[u32], &mut Scanner),
        direction: HttpDirection,
        content: &[u8],
        offset_of: &dyn Fn(usize) -> usize,
        out: &mut dyn EditOutput,
    ) -> Result<(), Refusal> {
        let Some(id) = self.exchange(direction) else { return Ok(()) };
        let (Some(state), Some(body)) =
            (&mut self.scans[direction as usize], &mut self.bodies[direction as usize])
        else {
            return Ok(());
        };
        let before = body.searched_before;
        body.searched_before += content.len() as u64;
        let slots = self.exchanges.live_slots_mut(id);
        let mut ended = None;
        let mut note = |pattern: u32, end: u64| {
            let found = rules.body_uses.get(pattern as usize);
            let place = found.and_then(|found| live.iter().position(|live| *live == found.rule));
            let (Some(found), Some(slot)) = (found, place.and_then(|place| slots.get_mut(place))) else {
                return ControlFlow::Continue(());
            };
            let bit = 1 << found.constraint;
            let Some(rule) = rules.rules.get(found.rule as usize).filter(|_| *slot & (FAILED | bit) == 0)
            else {
                return ControlFlow::Continue(());
            };
            *slot |= bit;
            if *slot == rule.met() {
                let end =
                    usize::try_from(end.saturating_sub(before)).unwrap_or(usize::MAX).min(content.len());
                out.hit(rule.number, offset_of(end));
                ended = rule.end;
                if ended.is_some() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let end = scanner.scan(state, content, &mut note);
        match ended {
            Some(end) => Err(Refusal::Ended(end)),
            None if end == ScanEnd::NotPrepared => Err(Refusal::NoRoom),
            None => Ok(()),
        }
    }
}
