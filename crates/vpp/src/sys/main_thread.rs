//! Calls of VPP from its main thread, to which nearly all of VPP belongs. A [`MainThread`] is the proof of being on it.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use vpp_plugin::bindings::clib_error_t;
use vpp_plugin::vppinfra::error::ErrorStack;

/// Bytes of a name, its terminating zero included.
const NAME: usize = 64;

unsafe extern "C" {
    fn mmb_shim_step_aside();
    fn mmb_shim_kick();
    fn mmb_shim_threads() -> u32;
    fn mmb_shim_queues(have: *mut bool, threads: u32);
    fn mmb_shim_core(thread: u32) -> u32;
    fn mmb_shim_log(level: u32, text: *const c_char);
    fn mmb_shim_error(text: *const c_char) -> *mut clib_error_t;
    fn mmb_shim_add_command(
        path: *const c_char,
        usage: *const c_char,
        help: *const c_char,
        number: usize,
    ) -> *mut clib_error_t;
    fn mmb_shim_output(text: *const c_char);
    fn mmb_shim_is_script() -> c_int;
    fn mmb_shim_may_suspend() -> c_int;
    fn mmb_shim_client_state() -> u32;
    fn mmb_shim_workers_are_stopped() -> c_int;
    fn mmb_shim_suspend(seconds: f64);
    fn mmb_shim_runtime_dir() -> *const c_char;
    fn mmb_shim_interfaces(numbers: *mut u32, room: u32) -> u32;
    fn mmb_shim_interface(number: u32, out: *mut MmbInterface) -> c_int;
    fn mmb_shim_switch(number: u32, on: c_int) -> c_int;
}

// shim.c asserts the same of its struct, and has the levels by number.
const _: () = assert!(size_of::<MmbInterface>() == 144);
const _: () = assert!(offset_of!(MmbInterface, link_up) == 4);
const _: () = assert!(offset_of!(MmbInterface, mac) == 7);
const _: () = assert!(offset_of!(MmbInterface, name) == 13);
const _: () = assert!(offset_of!(MmbInterface, driver) == 77);
const _: () =
    assert!(LogLevel::Error as u32 == 0 && LogLevel::Warning as u32 == 1 && LogLevel::Notice as u32 == 2);

/// `mmb_interface_t` in shim.c.
#[repr(C)]
struct MmbInterface {
    mtu: u32,
    link_up: u8,
    has_mac: u8,
    bridged: u8,
    mac: [u8; 6],
    name: [u8; NAME],
    driver: [u8; NAME],
}

/// A command of VPP's command line.
pub(crate) struct VppCommand {
    /// Its first words.
    pub(crate) path: String,
    /// The text that `?` shows behind them.
    pub(crate) usage: String,
    /// The text that `help` shows.
    pub(crate) help: String,
}

/// A severity of VPP's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Something failed.
    Error,
    /// Something may not be as intended.
    Warning,
    /// Information.
    Notice,
}

/// An interface as VPP sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VppInterface {
    /// `GigabitEthernet0/8/0`
    pub(crate) name: String,
    /// The name of its device class.
    pub(crate) driver: String,
    /// Its Ethernet address, if it has one.
    pub(crate) mac: Option<[u8; 6]>,
    /// The largest IP packet that it sends, in bytes.
    pub(crate) mtu: u32,
    /// It is enabled, and its link is up.
    pub(crate) up: bool,
    /// Its packets are bridged or cross-connected by their Ethernet addresses, and not routed.
    pub(crate) bridged: bool,
}

/// The state of the CLI client whose command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliClientState {
    /// It waits.
    Waits,
    /// It pressed a key.
    Typed,
    /// It closed its session.
    Closed,
}

/// A refusal by VPP, with its error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VPP refuses with error {0}")]
pub(crate) struct VppError(c_int);

/// Proof that the code runs on VPP's main thread, in a function that VPP called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MainThread(PhantomData<*const ()>);

impl MainThread {
    /// # Safety
    /// Only on VPP's main thread.
    pub(super) const unsafe fn here() -> MainThread {
        MainThread(PhantomData)
    }

    /// Makes every thread of VPP run mmb-tick soon.
    pub(crate) fn kick(self) {
        // SAFETY: on the main thread interrupts of nodes may be set for every thread.
        unsafe { mmb_shim_kick() }
    }

    /// The number of threads that run nodes, with the main thread.
    pub(crate) fn threads(self) -> usize {
        // SAFETY: reads a number that does not change once the configuration is read.
        unsafe { mmb_shim_threads() as usize }
    }

    /// For each of the first `threads` threads: true if it has a receive queue of an interface.
    pub(crate) fn queues(self, threads: usize) -> Vec<bool> {
        let mut have = vec![false; threads];
        // SAFETY: the vector has so much room, and the shim writes ones; queues change only on the main thread.
        unsafe { mmb_shim_queues(have.as_mut_ptr(), threads as u32) }
        have
    }

    /// The core of a thread; `None` until the threads run.
    pub(crate) fn core(self, thread: usize) -> Option<u32> {
        // SAFETY: the shim checks the number; the table changes only on the main thread.
        let core = unsafe { mmb_shim_core(thread as u32) };
        (core != u32::MAX).then_some(core)
    }

    /// Writes a line of VPP's log.
    pub(crate) fn log(self, level: LogLevel, text: &str) {
        let text = c_string(text);
        // SAFETY: the text ends with a zero and is copied.
        unsafe { mmb_shim_log(level as u32, text.as_ptr()) }
    }

    /// Adds a command to VPP's command line, which calls `mmb_rs_command` with `number`. No barrier stops the workers meanwhile.
    ///
    /// # Errors
    /// VPP's error: the command exists already.
    pub(crate) fn add_command(self, number: usize, command: &VppCommand) -> Result<(), String> {
        let text = |text: &str| c_string(text).into_raw();
        let (path, usage, help) = (text(&command.path), text(&command.usage), text(&command.help));
        // SAFETY: the texts end with zeros and are never freed, since VPP keeps them.
        let error = unsafe { mmb_shim_add_command(path, usage, help, number) };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: an error that VPP made and gave away.
        Err(unsafe { ErrorStack::from_raw(error) }.to_string())
    }

    /// Prints text to the client whose command runs. VPP ends the last line if the text does not.
    pub(crate) fn output(self, text: &str) {
        let text = c_string(text);
        // SAFETY: as in `log`.
        unsafe { mmb_shim_output(text.as_ptr()) }
    }

    /// True if the running command stands in a script, whose output may not be seen.
    pub(crate) fn is_script(self) -> bool {
        // SAFETY: reads the state of the main thread.
        unsafe { mmb_shim_is_script() != 0 }
    }

    /// True if [`MainThread::suspend`] may be called.
    pub(crate) fn may_suspend(self) -> bool {
        // SAFETY: reads the state of the main thread.
        unsafe { mmb_shim_may_suspend() != 0 }
    }

    /// The state of the client whose command runs. VPP itself handles its events after the command.
    pub(crate) fn client_state(self) -> CliClientState {
        // SAFETY: reads the state of the main thread.
        match unsafe { mmb_shim_client_state() } {
            0 => CliClientState::Waits,
            1 => CliClientState::Typed,
            _ => CliClientState::Closed,
        }
    }

    /// True if a barrier stops the workers during this call.
    pub(crate) fn workers_are_stopped(self) -> bool {
        // SAFETY: reads a state that the main thread alone changes.
        unsafe { mmb_shim_workers_are_stopped() != 0 }
    }

    /// Lets VPP do other work for that long.
    ///
    /// # Panics
    /// If [`MainThread::may_suspend`] is false.
    pub(crate) fn suspend(self, time: Duration) {
        assert!(self.may_suspend(), "VPP cannot suspend this call");
        // SAFETY: the code runs in a process, as checked above, whose own stack stays as it is meanwhile.
        unsafe { mmb_shim_suspend(time.as_secs_f64()) }
    }

    /// VPP's runtime directory, if it has one.
    pub(crate) fn runtime_dir(self) -> Option<&'static Path> {
        // SAFETY: set while VPP reads its configuration and never freed.
        let path = unsafe { mmb_shim_runtime_dir() };
        if path.is_null() {
            return None;
        }
        // SAFETY: it ends with a zero, as above.
        let path = unsafe { CStr::from_ptr(path) };
        Some(Path::new(OsStr::from_bytes(path.to_bytes())))
    }

    /// The numbers of all interfaces.
    pub(crate) fn interfaces(self) -> Vec<u32> {
        let mut numbers = Vec::new();
        loop {
            let room = numbers.len();
            // SAFETY: the vector has so much room; the pool of interfaces changes only on the main thread.
            let count = unsafe { mmb_shim_interfaces(numbers.as_mut_ptr(), room as u32) } as usize;
            numbers.resize(count, 0);
            if count <= room {
                return numbers;
            }
        }
    }

    /// The interface of that number, if it exists.
    pub(crate) fn interface(self, number: u32) -> Option<VppInterface> {
        let mut raw = MmbInterface {
            mtu: 0,
            link_up: 0,
            has_mac: 0,
            bridged: 0,
            mac: [0; 6],
            name: [0; NAME],
            driver: [0; NAME],
        };
        // SAFETY: the shim checks the number and writes nothing but the record.
        let there = unsafe { mmb_shim_interface(number, &mut raw) } != 0;
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        there.then(|| VppInterface {
            name: text(&raw.name),
            driver: text(&raw.driver),
            mac: (raw.has_mac != 0).then_some(raw.mac),
            mtu: raw.mtu,
            up: raw.link_up != 0,
            bridged: raw.bridged != 0,
        })
    }

    /// Enables or disables mmb's nodes on an interface's IPv4 and IPv6 arcs, while no worker runs.
    ///
    /// # Errors
    /// VPP has no such interface, or not our nodes.
    pub(crate) fn switch(self, number: u32, on: bool) -> Result<(), VppError> {
        // SAFETY: VPP checks the number; the shim stops the workers meanwhile.
        let error = unsafe { mmb_shim_switch(number, c_int::from(on)) };
        if error == 0 { Ok(()) } else { Err(VppError(error)) }
    }
}

/// Moves the calling thread, which must not be one of VPP's, and the threads that it starts to cores that VPP leaves free, if any.
pub(crate) fn step_aside() {
    // SAFETY: reads what was written before a thread of ours existed, and changes only this thread's affinity.
    unsafe { mmb_shim_step_aside() }
}

/// A VPP error; vpp-plugin's own constructor would take the text for a format.
pub(super) fn error(text: &str) -> *mut clib_error_t {
    let text = c_string(text);
    // SAFETY: the text ends with a zero and is copied.
    unsafe { mmb_shim_error(text.as_ptr()) }
}

/// Text for C, with replacements for zeros, which would end it.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}
