//! The environment of DPDK: memory, plugins, threads, log.

use super::ffi;
use crate::error::PortError;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options of the environment.
#[derive(Clone, Debug, Default)]
pub struct EalOptions {
    /// Memory that the pools will need, in bytes.
    pub memory: usize,
    /// PCI devices that may be used; all others stay untouched.
    pub pci: Vec<String>,
    /// Cores that the process may use.
    pub cores: Vec<usize>,
}

/// The running environment. There can be one a process, and only once.
///
/// It ends with the process. DPDK could end it before, but frees its memory then while a thread of its own may still
/// use it; ports that are closed one by one leave nothing behind that the end of the process does not free.
#[derive(Debug)]
pub struct Eal {
    /// True if its memory is in huge pages.
    huge: bool,
}

impl Eal {
    /// Starts the environment, in huge pages if enough of them are free, else in ordinary memory. Other processes see
    /// nothing of it, so that instances do not clash.
    ///
    /// # Errors
    /// [`PortError::NoDpdk`] in a build without DPDK; [`PortError::Dpdk`] with what DPDK logged.
    pub fn start(options: &EalOptions) -> Result<Eal, PortError> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        if cfg!(not(dpdk)) {
            return Err(PortError::NoDpdk);
        }
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(PortError::Dpdk {
                doing: "starting DPDK a second time".into(),
                errno: libc::EALREADY,
                log: String::new(),
            });
        }
        let huge = free_huge_memory() >= options.memory;
        let words = arguments(options, huge);
        let mut argv: Vec<*mut std::ffi::c_char> =
            words.iter().map(|word| word.as_ptr().cast_mut()).collect();
        // SAFETY: `argv` holds as many valid C strings as `argc` says; DPDK copies what it keeps and, like any
        // program's `main`, only permutes the array.
        let result = unsafe { ffi::mmb_eal_start(argv.len() as i32, argv.as_mut_ptr()) };
        if result < 0 {
            return Err(refused("starting DPDK", -result));
        }
        Ok(Eal { huge })
    }

    /// True if the memory of packets is in huge pages.
    pub fn huge_pages(&self) -> bool {
        self.huge
    }
}

/// A packet thread's membership of the environment: its own buffer caches. Ends with the value.
#[derive(Debug)]
pub struct EalThread {
    registered: bool,
    not_send: PhantomData<*const ()>,
}

impl EalThread {
    /// Makes the calling thread a member. Without a free place it works all the same, only slower.
    pub fn join() -> EalThread {
        // SAFETY: concerns the calling thread only, and is allowed at any time once the environment runs; before
        // that it fails.
        let registered = unsafe { ffi::mmb_thread_register() } == 0;
        EalThread { registered, not_send: PhantomData }
    }
}

impl Drop for EalThread {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread registered itself; the value cannot leave it.
            unsafe { ffi::mmb_thread_unregister() }
        }
    }
}

/// A refusal by DPDK, with what it logged since the last call of [`take_log`].
pub(crate) fn refused(doing: impl Into<String>, errno: i32) -> PortError {
    PortError::dpdk(doing, errno, take_log())
}

/// Takes the log of DPDK and its drivers since the last call, one line per entry, in their words.
pub(crate) fn take_log() -> String {
    let mut buffer = vec![0; 8192];
    // SAFETY: the buffer has that many bytes.
    let length = unsafe { ffi::mmb_log_take(buffer.as_mut_ptr(), buffer.len()) };
    buffer.truncate(length);
    String::from_utf8_lossy(&buffer).into_owned()
}

fn arguments(options: &EalOptions, huge: bool) -> Vec<CString> {
    let cores: Vec<String> = options.cores.iter().map(usize::to_string).collect();
    let mut words = vec!["mmb".to_owned(), "--no-telemetry".into(), "--log-level=*:4".into()];
    if !cores.is_empty() {
        words.push(format!("--lcores=0@({})", cores.join(",")));
    }
    // Nothing that other processes could see or clash with: no files, no sockets.
    if huge {
        words.push("--in-memory".into());
    } else {
        words.push("--no-shconf".into());
        words.push("--no-huge".into());
        words.push("-m".into());
        words.push(options.memory.div_ceil(1 << 20).to_string());
    }
    if options.pci.is_empty() {
        words.push("--no-pci".into());
        words.push("--iova-mode=va".into());
    }
    for device in &options.pci {
        words.push("-a".into());
        words.push(device.clone());
    }
    words.into_iter().filter_map(|word| CString::new(word).ok()).collect()
}

/// Bytes of free huge pages.
fn free_huge_memory() -> usize {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    sizes
        .flatten()
        .filter_map(|size| {
            let name = size.file_name().into_string().ok()?;
            let kib: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
            Some(kib * 1024 * free.trim().parse::<usize>().ok()?)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(options: &EalOptions, huge: bool) -> String {
        let words: Vec<String> =
            arguments(options, huge).into_iter().map(|word| word.into_string().expect("text")).collect();
        words.join(" ")
    }

    #[test]
    fn without_pci_devices_the_bus_is_left_alone() {
        let options = EalOptions { memory: 3 << 20, pci: vec![], cores: vec![0, 2] };
        let line = line(&options, false);
        assert!(line.contains("--no-pci"), "{line}");
        assert!(line.contains("--lcores=0@(0,2)"), "{line}");
        assert!(line.ends_with("--no-shconf --no-huge -m 3 --no-pci --iova-mode=va"), "{line}");
    }

    #[test]
    fn named_pci_devices_are_the_only_ones_used() {
        let options = EalOptions { memory: 1, pci: vec!["0000:01:00.0".into()], cores: vec![] };
        let line = line(&options, true);
        assert!(line.ends_with("-a 0000:01:00.0"), "{line}");
        assert!(!line.contains("--no-huge") && !line.contains("--no-pci"), "{line}");
    }
}
