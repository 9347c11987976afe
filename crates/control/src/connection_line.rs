//! A connection as lines of answers describe it.

use mmb_engine::{
    ConnectionInfo, ConnectionStream, EditStats, Endpoints, Level, SideStats, StreamEvent, StreamEventKind,
    StreamSummary, StreamUsage, Vlans,
};
use mmb_policy::FieldId;
use mmb_policy::settings::StreamUnfit;
use mmb_protocol::answer::{
    ConnectionLine, ConnectionPlace, DigestLine, EndsLine, StreamEditsLine, StreamEventLine, StreamLine,
    StreamSideLine, StreamSummaryLine, StreamUsageLine, TrafficLine,
};
use std::collections::BTreeMap;

/// Describes a connection; `verbose` adds its place in the table.
pub(crate) fn connection_line(info: &ConnectionInfo, verbose: bool) -> ConnectionLine {
    let traffic = |way: usize| TrafficLine { packets: info.packets[way], bytes: info.bytes[way] };
    let proto = FieldId::IpProto.info().names.name(info.proto.into());
    ConnectionLine {
        proto: proto.map_or_else(|| info.proto.to_string(), str::to_owned),
        state: info.state.to_owned(),
        arrived: ends(&info.arrived),
        sent: ends(&info.sent),
        age_ms: info.age_ms,
        idle_ms: info.idle_ms,
        expires_ms: info.expires_ms,
        forward: traffic(0),
        reply: traffic(1),
        rules: info.rules.iter().map(|rule| rule.0).collect(),
        vlans: vlans(info),
        key: Some(info.key).filter(|key| *key != 0),
        icmp_type: Some(info.icmp_type).filter(|icmp_type| *icmp_type != 0),
        stream: info.stream.as_deref().map(stream_line),
        place: verbose.then_some(ConnectionPlace { worker: info.worker, id: info.id, wire: info.wire.port }),
    }
}

fn stream_line(stream: &ConnectionStream) -> StreamLine {
    let side = |direction: usize| {
        stream.info.as_ref().map(|info| {
            let SideStats { bytes, repeated, early, gaps, gap_bytes, overwritten } = info.stats[direction];
            StreamSideLine {
                level: info.levels[direction].name().to_owned(),
                bytes,
                repeated,
                early,
                gaps,
                gap_bytes,
                overwritten,
                kept: info.kept[direction] as u64,
                waiting: info.early[direction] as u64,
                edits: (info.levels[direction] == Level::Edit).then(|| edits_line(&info.edits[direction])),
            }
        })
    };
    StreamLine { ended: stream.ended.map(str::to_owned), forward: side(0), reply: side(1) }
}

fn edits_line(stats: &EditStats) -> StreamEditsLine {
    let EditStats { edits, removed, added, held, waiting } = *stats;
    let delta = added.wrapping_sub(removed).cast_signed();
    StreamEditsLine { edits, delta, held: held as u64, unsent: waiting }
}

/// Describes an event of a stream.
pub(crate) fn stream_event_line(event: &StreamEvent) -> StreamEventLine {
    let proto = FieldId::IpProto.info().names.name(event.proto.into());
    let reason = match &event.kind {
        StreamEventKind::HttpUnfit { reason, .. } => Some(reason.name().to_owned()),
        _ => None,
    };
    let (text, digests) = match &event.kind {
        StreamEventKind::Alert { text } => (Some(text.to_string()).filter(|text| !text.is_empty()), None),
        StreamEventKind::Close | StreamEventKind::Drop => (None, None),
        StreamEventKind::HttpUnfit { reason, .. } => (Some(reason.meaning().to_owned()), None),
        StreamEventKind::Digest { bytes, crc32c } => {
            let digest =
                |way: usize| DigestLine { bytes: bytes[way], crc32c: format!("{:08x}", crc32c[way]) };
            (None, Some([digest(0), digest(1)]))
        }
    };
    let [forward, reply] = digests.map_or([None, None], |digests| digests.map(Some));
    StreamEventLine {
        what: event.kind.name().to_owned(),
        rule: event.rule.map(|rule| rule.0),
        reason,
        text,
        proto: proto.map_or_else(|| event.proto.to_string(), str::to_owned),
        arrived: ends(&event.arrived),
        direction: forward.is_none().then(|| if event.is_reply { "reply" } else { "forward" }.to_owned()),
        offset: forward.is_none().then_some(event.offset),
        forward,
        reply,
    }
}

/// Describes the streams of all workers in numbers. `unfit` is what becomes of connections that cannot be followed.
pub(crate) fn stream_summary_line(workers: &[StreamSummary], unfit: StreamUnfit) -> StreamSummaryLine {
    let mut total = StreamSummary::default();
    workers.iter().for_each(|worker| total.add(worker.clone()));
    let StreamSummary { levels, states, ended, unfit: passing, kept, waiting, held, unsent, .. } = total;
    let usage = workers.iter().zip(0..).map(|(summary, worker)| {
        let StreamUsage { streams, most_streams, memory, most_memory, .. } = summary.usage;
        StreamUsageLine {
            worker,
            streams: streams as u64,
            max: most_streams as u64,
            memory: memory as u64,
            memory_max: most_memory as u64,
        }
    });
    let named = |counts: BTreeMap<&str, u64>| {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
    };
    StreamSummaryLine {
        levels: named(levels),
        states: named(states),
        ended: named(ended),
        unfit: passing,
        kept,
        waiting,
        held,
        unsent,
        // A worker that was never asked to follow streams has no memory for them.
        workers: usage.filter(|usage| usage.memory_max > 0).collect(),
        warnings: warnings(workers, unfit),
    }
}

/// The limits that are reached.
fn warnings(workers: &[StreamSummary], unfit: StreamUnfit) -> Vec<String> {
    let fate = match unfit {
        StreamUnfit::Pass => "pass without stream rules",
        StreamUnfit::Close => "are closed",
        StreamUnfit::Drop => "are dropped",
    };
    let mut warnings = Vec::new();
    for (StreamSummary { usage, .. }, worker) in workers.iter().zip(0_u16..) {
        let of = if workers.len() > 1 { format!(" of worker {worker}") } else { String::new() };
        if usage.most_memory > 0 && usage.streams >= usage.most_streams {
            warnings.push(format!(
                "`stream max`{of} is reached ({}): new connections {fate} (`stream unfit`)",
                usage.most_streams
            ));
        }
        if usage.is_short {
            warnings.push(format!(
                "less than an eighth of `stream memory`{of} is left: new connections that rules close, drop or edit {fate} (`stream unfit`)"
            ));
        }
    }
    warnings
}

/// Returns the VLAN identifiers of its arriving packets, without zeros at the end.
fn vlans(info: &ConnectionInfo) -> Vec<u16> {
    let Vlans { outer, inner } = info.wire.vlans;
    match (outer, inner) {
        (0, 0) => Vec::new(),
        (outer, 0) => vec![outer],
        (outer, inner) => vec![outer, inner],
    }
}

fn ends(ends: &Endpoints) -> EndsLine {
    EndsLine { src: ends.src, sport: ends.sport, dst: ends.dst, dport: ends.dport }
}
