//! VPP's side of the plugin, in two directions: what VPP calls (`mmb_rs_…`, told to VPP by shim.c), and what may be asked of VPP.
//!
//! Nearly all of VPP belongs to its main thread. Whoever holds a [`MainThread`] is on it; it is made here only, where VPP calls. A panic
//! may not leave Rust, or VPP ends: what VPP calls is [guarded](guard).

use crate::cli::{self, CliCommand};
use crate::{interfaces, nodes, runtime};
use std::error::Error;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use vpp_plugin::bindings::{clib_error_t, vlib_main_t};
use vpp_plugin::vlib::MainRef;
use vpp_plugin::vppinfra::error::ErrorStack;

/// Bytes of a name that VPP gives, its end included.
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
    fn mmb_shim_client_did() -> u32;
    fn mmb_shim_workers_stand_still() -> c_int;
    fn mmb_shim_suspend(seconds: f64);
    fn mmb_shim_runtime_dir() -> *const c_char;
    fn mmb_shim_interfaces(numbers: *mut u32, room: u32) -> u32;
    fn mmb_shim_interface(number: u32, out: *mut MmbInterface) -> c_int;
    fn mmb_shim_switch(number: u32, on: c_int) -> c_int;
}

/// As `mmb_interface_t` in shim.c.
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

/// How much a line of VPP's log matters; by number as in shim.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Something failed.
    Error,
    /// Something may not be as it is meant.
    Warning,
    /// Something that is good to know.
    Notice,
}

/// An interface as VPP sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VppInterface {
    /// `GigabitEthernet0/8/0`
    pub(crate) name: String,
    /// What drives it, by the name of its class of devices.
    pub(crate) driver: String,
    /// Its Ethernet address, if it has one.
    pub(crate) mac: Option<[u8; 6]>,
    /// The largest IP packet that may leave by it, in bytes.
    pub(crate) mtu: u32,
    /// It is switched on, and so is its link.
    pub(crate) up: bool,
    /// Its packets are bridged or cross-connected by their Ethernet addresses, and not routed.
    pub(crate) bridged: bool,
}

/// What a client of VPP's command line did while its command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliClientState {
    /// It waits.
    Nothing,
    /// It pressed a key.
    Type,
    /// It went.
    Go,
}

/// VPP could not be asked: the number that it gave as the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VPP refuses with error {0}")]
pub(crate) struct VppError(c_int);

/// Being on VPP's main thread, in something that VPP called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MainThread(PhantomData<*const ()>);

impl MainThread {
    /// # Safety
    /// Only on VPP's main thread.
    const unsafe fn here() -> MainThread {
        MainThread(PhantomData)
    }

    /// Has every thread of VPP call [`nodes::tick`] soon.
    pub(crate) fn kick(self) {
        // SAFETY: on the main thread interrupts of nodes may be set for every thread.
        unsafe { mmb_shim_kick() }
    }

    /// Threads that run nodes, the main one among them.
    pub(crate) fn threads(self) -> usize {
        // SAFETY: reads a number that does not change once the configuration is read.
        unsafe { mmb_shim_threads() as usize }
    }

    /// Which of so many threads have receive queues of interfaces now.
    pub(crate) fn queues(self, threads: usize) -> Vec<bool> {
        let mut have = vec![false; threads];
        // SAFETY: the vector has so much room, and the shim writes ones; queues change only on the main thread.
        unsafe { mmb_shim_queues(have.as_mut_ptr(), threads as u32) }
        have
    }

    /// The core that a thread is pinned to, once the threads run.
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

    /// Adds a command to VPP's command line, which the module `cli` carries out with `number`. No barrier stops the workers meanwhile.
    ///
    /// # Errors
    /// What VPP says: there is such a command already.
    pub(crate) fn add_command(self, number: usize, command: &CliCommand) -> Result<(), String> {
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

    /// Shows text to whoever gave the command that runs. Text that ends inside a line gets a line's end.
    pub(crate) fn output(self, text: &str) {
        let text = c_string(text);
        // SAFETY: as in `log`.
        unsafe { mmb_shim_output(text.as_ptr()) }
    }

    /// Whether the command that runs stands in a script, whose answers nobody may see.
    pub(crate) fn is_script(self) -> bool {
        // SAFETY: reads the state of the main thread.
        unsafe { mmb_shim_is_script() != 0 }
    }

    /// Whether VPP can do something else while what it called waits.
    pub(crate) fn may_suspend(self) -> bool {
        // SAFETY: reads the state of the main thread.
        unsafe { mmb_shim_may_suspend() != 0 }
    }

    /// What whoever gave the command that runs did since. VPP itself hears of it when the command is done.
    pub(crate) fn client_did(self) -> CliClientState {
        // SAFETY: reads the state of the main thread.
        match unsafe { mmb_shim_client_did() } {
            0 => CliClientState::Nothing,
            1 => CliClientState::Type,
            _ => CliClientState::Go,
        }
    }

    /// Whether no worker works for as long as VPP waits for what it called.
    pub(crate) fn workers_stand_still(self) -> bool {
        // SAFETY: reads what the main thread alone changes.
        unsafe { mmb_shim_workers_stand_still() != 0 }
    }

    /// Lets VPP do something else for that long.
    ///
    /// # Panics
    /// Where [`MainThread::may_suspend`] says no.
    pub(crate) fn suspend(self, time: Duration) {
        assert!(self.may_suspend(), "VPP cannot do something else here");
        // SAFETY: in a process, as was asked just now. The process has its own stack, which stays as it is meanwhile.
        unsafe { mmb_shim_suspend(time.as_secs_f64()) }
    }

    /// Where VPP keeps what lives as long as it runs, if it has such a place.
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

    /// The interface of that number, if there is one.
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

    /// Puts mmb's nodes in the way of an interface's IPv4 and IPv6 packets, or takes them out of it, while no worker runs.
    ///
    /// # Errors
    /// VPP knows no such interface, or not our nodes.
    pub(crate) fn switch(self, number: u32, on: bool) -> Result<(), VppError> {
        // SAFETY: VPP checks the number; the shim stops the workers meanwhile.
        let error = unsafe { mmb_shim_switch(number, c_int::from(on)) };
        if error == 0 { Ok(()) } else { Err(VppError(error)) }
    }
}

/// Has the thread that calls, which is none of VPP's, and those that it starts run on cores that VPP leaves free, if there are any.
pub(crate) fn step_aside() {
    // SAFETY: reads what was written before there was a thread of ours, and changes only where this one runs.
    unsafe { mmb_shim_step_aside() }
}

/// An error as VPP passes them on; vpp-plugin's own takes the text for a format.
fn error(text: &str) -> *mut clib_error_t {
    let text = c_string(text);
    // SAFETY: the text ends with a zero and is copied.
    unsafe { mmb_shim_error(text.as_ptr()) }
}

/// An error and what caused it, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Text for C. A zero in it would be its end.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Runs what VPP called. What ends with a panic is told in VPP's log, and gives nothing.
fn guard<T>(main: MainThread, what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        main.log(LogLevel::Error, &format!("{what}: an internal error; VPP's standard error tells more"));
    }
    done.ok()
}

/// Reads the section of startup.conf, which may be absent, and starts.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_config(text: *const c_char) -> *mut clib_error_t {
    // SAFETY: VPP reads its configuration on its main thread.
    let main = unsafe { MainThread::here() };
    // SAFETY: the shim ends the text with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match guard(main, "start", || runtime::start(main, &text)) {
        Some(Ok(())) => std::ptr::null_mut(),
        Some(Err(stop)) => error(&format!("mmb: {}", chain(&stop))),
        None => error("mmb: an internal error"),
    }
}

/// Somebody gave a command.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_command(number: usize, line: *const c_char) -> *mut clib_error_t {
    // SAFETY: VPP carries commands out on its main thread.
    let main = unsafe { MainThread::here() };
    // SAFETY: the shim ends the line with a zero.
    let line = unsafe { CStr::from_ptr(line) }.to_bytes();
    match guard(main, "command", || cli::run_logged(main, number, line)) {
        Some(Ok(())) => std::ptr::null_mut(),
        Some(Err(why)) => error(&why),
        None => error("an internal error; VPP's log tells more"),
    }
}

/// VPP ends.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_exit() {
    // SAFETY: VPP leaves its main loop on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "stop", runtime::stop);
}

/// An interface came or goes.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_interface(number: u32, is_add: u32) {
    // SAFETY: VPP makes and deletes interfaces on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "interfaces", || interfaces::changed(main, number, is_add != 0));
}

/// Now and then.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_process(turn: u32) {
    // SAFETY: VPP runs processes on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "mmb-process", || runtime::poll(main, turn));
}

/// A thread of VPP was told to look after its worker.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_tick(vm: *mut vlib_main_t) -> usize {
    // SAFETY: VPP's state of this thread.
    let vm = unsafe { MainRef::from_ptr_mut(vm) };
    catch_unwind(AssertUnwindSafe(|| nodes::tick(vm))).unwrap_or_default()
}
