//! The sinks of the log. Each has a thread of its own: one that is slow, or that fails, delays no other.

mod contract;
mod datagram;
mod file;
mod ipfix;
mod journald;
mod syslog;

use crate::spec::{SinkSpec, SinkTarget};
pub(crate) use contract::Sink;

use datagram::DatagramSink;
use file::FileSink;
use ipfix::IpfixSink;
use std::io;
use std::sync::Arc;

/// Opens the sink that `--log` asks for. `ports` are the names of the ports by number.
///
/// # Errors
/// The file cannot be opened. Peers may come later.
pub(crate) fn open(spec: &SinkSpec, ports: &Arc<[String]>) -> io::Result<Box<dyn Sink>> {
    let ports = Arc::clone(ports);
    Ok(match &spec.target {
        SinkTarget::File(path) => Box::new(FileSink::open(path, ports)?),
        SinkTarget::Journald(path) => Box::new(DatagramSink::new(path, journald::JournalFormat::new(ports))),
        SinkTarget::Syslog(peer) => Box::new(DatagramSink::to(peer, syslog::SyslogFormat::new(ports))),
        SinkTarget::Ipfix(peer) => Box::new(IpfixSink::new(peer)),
    })
}

/// The text of a record as the sinks of text write it, without the byte order mark of syslog.
#[cfg(test)]
pub(crate) fn written(record: &crate::record::Record) -> [String; 3] {
    use datagram::DatagramFormat;
    let ports: Arc<[String]> = Arc::new(["lan".to_owned(), "wan".to_owned()]);
    let mut outs = [Vec::new(), Vec::new(), Vec::new()];
    crate::json::write(record, &ports, &mut outs[0]);
    journald::JournalFormat::new(Arc::clone(&ports)).write(record, &mut outs[1]);
    syslog::SyslogFormat::new(ports).write(record, &mut outs[2]);
    outs.map(|out| String::from_utf8(out).expect("text").replace('\u{feff}', ""))
}
