//! Errors of ports, with remedies.

use std::fmt;

/// A reason for which a port, or DPDK, could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The program was built without DPDK.
    #[error("this mmb was built without DPDK: install libdpdk-dev and build again")]
    NoDpdk,
    /// The text is no device.
    #[error("'{device}' is not a device: {why}")]
    BadDevice {
        /// As given.
        device: String,
        /// The error in it.
        why: String,
    },
    /// There is no such kernel interface.
    #[error("there is no interface '{name}'{}", NameHint(.nearest, .known))]
    NoInterface {
        /// As given.
        name: String,
        /// The existing name that is most like it.
        nearest: Option<String>,
        /// Every name that exists.
        known: Vec<String>,
    },
    /// Another mmb has the interface.
    #[error(
        "interface '{interface}' is used by another mmb{}; stop that one first, or use another interface",
        process.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    InUse {
        /// The interface.
        interface: String,
        /// The process of the other mmb, if it is known.
        process: Option<u32>,
    },
    /// The interface is not one that carries Ethernet frames between others.
    #[error("interface '{name}' cannot be a port: {why}")]
    UnfitInterface {
        /// Its name.
        name: String,
        /// The error in it.
        why: &'static str,
    },
    /// The process may not do that.
    #[error(
        "no permission for {doing}: run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN; AF_XDP also needs \
         CAP_SYS_ADMIN and CAP_IPC_LOCK"
    )]
    Permission {
        /// The action that failed.
        doing: String,
    },
    /// Two ports want the same device.
    #[error("{device} is used by two ports: '{first}' and '{second}'")]
    Clash {
        /// The device.
        device: String,
        /// One port.
        first: String,
        /// The other.
        second: String,
    },
    /// The socket of a memif server is taken.
    #[error(
        "memif socket {0}: another program listens there; use another path, or role=client to connect to it"
    )]
    MemifTaken(String),
    /// Packet buffers do not fit in memory.
    #[error(
        "no memory for packet buffers ({mib} MiB): free some, or reserve huge pages (sysctl vm.nr_hugepages)"
    )]
    NoMemory {
        /// The requested memory.
        mib: usize,
    },
    /// The kernel refused.
    #[error("{doing}: {}", std::io::Error::from_raw_os_error(*.errno))]
    System {
        /// The action that failed.
        doing: String,
        /// The errno value.
        errno: i32,
    },
    /// DPDK or one of its drivers refused.
    #[error("{doing}: {}", Cause(*.errno, .log))]
    Dpdk {
        /// The action that failed.
        doing: String,
        /// The errno value.
        errno: i32,
        /// The log of DPDK meanwhile.
        log: String,
    },
    /// The device of a port could not be opened.
    #[error("port {port}: {reason}")]
    Port {
        /// The port's name.
        port: String,
        /// The reason.
        reason: Box<PortError>,
    },
    /// A device could not be added.
    #[error("{device}: {why}; {remedy}")]
    Device {
        /// As given.
        device: String,
        /// DPDK's error.
        why: String,
        /// The remedy.
        remedy: &'static str,
    },
}

impl PortError {
    /// A refusal by DPDK, with what it logged about it.
    pub(crate) fn dpdk(doing: impl Into<String>, errno: i32, log: String) -> PortError {
        let doing = doing.into();
        // Drivers give -1 for any failure, which looks like EPERM.
        let forbidden =
            ["Operation not permitted", "Permission denied"].iter().any(|&words| log.contains(words));
        match errno {
            libc::EACCES => PortError::Permission { doing },
            _ if forbidden => PortError::Permission { doing },
            _ => PortError::Dpdk { doing, errno, log },
        }
    }

    /// The device, and the process if it is known, if another process has the device. It is free when that process has ended.
    pub fn held_resource(&self) -> Option<(String, Option<u32>)> {
        if let PortError::Port { reason, .. } = self {
            return reason.held_resource();
        }
        if let PortError::MemifTaken(path) = self {
            return Some((format!("memif socket {path}"), None));
        }
        let PortError::InUse { interface, process } = self else { return None };
        Some((format!("interface '{interface}'"), *process))
    }

    /// The same with the name of the port that it is about.
    pub(crate) fn of_port(self, port: &str) -> PortError {
        PortError::Port { port: port.to_owned(), reason: Box::new(self) }
    }

    /// A refusal by the kernel, from `errno`.
    pub(crate) fn system(doing: impl Into<String>) -> PortError {
        PortError::refused(doing, &std::io::Error::last_os_error())
    }

    /// A refusal by the kernel.
    pub(crate) fn refused(doing: impl Into<String>, error: &std::io::Error) -> PortError {
        let doing = doing.into();
        match error.raw_os_error().unwrap_or(0) {
            libc::EPERM | libc::EACCES => PortError::Permission { doing },
            errno => PortError::System { doing, errno },
        }
    }
}

/// `: did you mean …?`, else what there is.
struct NameHint<'a>(&'a Option<String>, &'a [String]);

impl fmt::Display for NameHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(nearest), _) => write!(f, "; did you mean '{nearest}'?"),
            (None, []) => Ok(()),
            (None, known) => write!(f, "; there are {}", known.join(", ")),
        }
    }
}

/// The log of a driver; without a log, the meaning of its error number.
struct Cause<'a>(i32, &'a str);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This only says again that it failed.
        let tells = |line: &&str| !line.is_empty() && !line.contains("attach device on primary process");
        if let Some((_, words)) = self.1.rsplit_once("Kernel error message: ") {
            return f.write_str(words.lines().next().unwrap_or_default().trim());
        }
        let lines: Vec<&str> = self.1.lines().map(str::trim).filter(tells).collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        if last.is_empty() {
            write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
        } else {
            f.write_str(last.join("; ").trim_end_matches('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_names_the_nearest_or_all() {
        let error = |nearest: Option<&str>| PortError::NoInterface {
            name: "eht0".into(),
            nearest: nearest.map(str::to_owned),
            known: vec!["lo".into(), "eth0".into()],
        };
        assert_eq!(error(Some("eth0")).to_string(), "there is no interface 'eht0'; did you mean 'eth0'?");
        assert_eq!(error(None).to_string(), "there is no interface 'eht0'; there are lo, eth0");
    }

    #[test]
    fn a_driver_s_log_says_more_than_its_number() {
        let error =
            |log: &str| PortError::Dpdk { doing: "adding x".into(), errno: libc::ENODEV, log: log.into() };
        let log = "EAL: a\n\n b.\nEAL: Failed to attach device on primary process\n";
        assert_eq!(error(log).to_string(), "adding x: EAL: a; b");
        let log = "libbpf: Kernel error message: veth: no\nxsk_configure(): Failed\n";
        assert_eq!(error(log).to_string(), "adding x: veth: no");
        assert_eq!(error("").to_string(), "adding x: No such device (os error 19)");
    }
}
