//! The flow offload for people: its numbers, its ports, and the flows that stay with mmb.

use super::text_table::{Align, TextTable};
use crate::screen::Screen;
use mmb_protocol::answer::{KeptFlowsLine, OffloadLine, PortOffloadLine};

/// The lines of an answer to `show offload`.
#[derive(Debug, Default)]
pub(super) struct OffloadListing {
    pub(super) line: OffloadLine,
    pub(super) ports: Vec<PortOffloadLine>,
    pub(super) kept: Vec<KeptFlowsLine>,
}

impl OffloadListing {
    /// Prints them. A host without lines of ports has no flow offload.
    pub(super) fn end(self, screen: &mut Screen<'_>) {
        let OffloadListing { line, ports, kept } = self;
        if ports.is_empty() {
            screen.text("this host has no flow offload: every packet passes a worker\n");
            return;
        }
        let mut table = TextTable::new(&[("OFFLOAD", Align::Right), ("", Align::Left)]);
        let mut row = |count: String, label: String| table.row(screen, vec![count, label]);
        row(line.setting, "the setting (`set offload`)".to_owned());
        for (count, label) in [
            (line.flows, format!("flows now, of {} at most", line.capacity)),
            (line.installed, "installed".to_owned()),
            (line.evicted, "evicted: they were idle, and others needed their places".to_owned()),
            (line.hits.packets, "packets that the kernel forwarded or dropped (hits)".to_owned()),
            (line.hits.bytes, "bytes of these".to_owned()),
            (line.misses, "packets that came to mmb while flows were offloaded (misses)".to_owned()),
        ] {
            row(count.to_string(), label);
        }
        table.end(screen, None);
        screen.text("\n");
        show_ports(screen, ports);
        show_kept(screen, kept);
    }
}

fn show_ports(screen: &mut Screen<'_>, ports: Vec<PortOffloadLine>) {
    let mut table = TextTable::new(&[("PORT", Align::Left), ("OFFLOAD", Align::Left)]);
    for PortOffloadLine { port, how, reason } in ports {
        let state = how.unwrap_or_else(|| format!("none: {}", reason.unwrap_or_default()));
        table.row(screen, vec![port, state]);
    }
    table.end(screen, None);
}

fn show_kept(screen: &mut Screen<'_>, mut kept: Vec<KeptFlowsLine>) {
    if kept.is_empty() {
        return;
    }
    screen.text("\n");
    kept.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    let mut table = TextTable::new(&[
        ("STAYED WITH MMB", Align::Right),
        ("REASON", Align::Left),
        ("MEANING", Align::Left),
    ]);
    for KeptFlowsLine { reason, count, meaning } in kept {
        table.row(screen, vec![count.to_string(), reason, meaning]);
    }
    table.end(screen, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;
    use mmb_protocol::answer::TrafficLine;

    #[test]
    fn numbers_ports_and_reasons_are_shown() {
        let port = |port: &str, how: Option<&str>, reason: Option<&str>| PortOffloadLine {
            port: port.to_owned(),
            how: how.map(str::to_owned),
            reason: reason.map(str::to_owned),
        };
        let kept = |reason: &str, count, meaning: &str| KeptFlowsLine {
            reason: reason.to_owned(),
            count,
            meaning: meaning.to_owned(),
        };
        let listing = OffloadListing {
            line: OffloadLine {
                setting: "auto".to_owned(),
                flows: 3,
                capacity: 65_536,
                installed: 7,
                evicted: 2,
                hits: TrafficLine { packets: 900, bytes: 90_000 },
                misses: 50,
            },
            ports: vec![port("lan", Some("tcx"), None), port("wan", None, Some("no kernel interface"))],
            kept: vec![kept("full", 1, "the table is full"), kept("stream", 4, "rules follow its bytes")],
        };
        let expected = "\
OFFLOAD
   auto  the setting (`set offload`)
      3  flows now, of 65536 at most
      7  installed
      2  evicted: they were idle, and others needed their places
    900  packets that the kernel forwarded or dropped (hits)
  90000  bytes of these
     50  packets that came to mmb while flows were offloaded (misses)

PORT  OFFLOAD
lan   tcx
wan   none: no kernel interface

STAYED WITH MMB  REASON  MEANING
              4  stream  rules follow its bytes
              1  full    the table is full
";
        assert_eq!(shown(|screen| listing.end(screen)), expected);
    }

    #[test]
    fn a_host_without_offload_says_so_and_shows_no_numbers() {
        let shown = shown(|screen| OffloadListing::default().end(screen));
        assert_eq!(shown, "this host has no flow offload: every packet passes a worker\n");
    }
}
