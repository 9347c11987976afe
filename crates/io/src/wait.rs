//! Waiting for packets without burning a core.
//!
//! Queues of kernel interfaces have descriptors that the kernel marks readable when something arrives: a thread
//! that has only such queues sleeps in the kernel and is woken at once. Other devices must be looked at, so that
//! the sleep is short, and grows while nothing comes.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

/// The first sleep of a thread that must look by itself.
const FIRST_STEP: Duration = Duration::from_micros(50);
/// Its longest sleep, after about 15 ms without packets: a thousand polls a second cost two or three per cent of a core.
const LAST_STEP: Duration = Duration::from_millis(1);

/// The waiter of one thread.
#[derive(Debug, Default)]
pub struct Waiter {
    descriptors: Vec<libc::pollfd>,
    /// Some queue has no descriptor.
    blind: bool,
    step: Duration,
}

impl Waiter {
    /// Waits for these descriptors; `blind`: something else must be looked at as well.
    pub fn new(descriptors: impl IntoIterator<Item = RawFd>, blind: bool) -> Waiter {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        exact_timers();
        Waiter { descriptors: descriptors.into_iter().map(poll).collect(), blind, step: FIRST_STEP }
    }

    /// Waits for this descriptor too.
    pub fn watch(&mut self, descriptor: Option<RawFd>) {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.descriptors.extend(descriptor.map(poll));
    }

    /// Sleeps until something may have arrived, or that long.
    pub fn wait(&mut self, timeout: Duration) {
        let step = if self.blind { self.step.min(timeout) } else { timeout };
        self.step = (self.step + self.step / 16).min(LAST_STEP);
        let time = libc::timespec { tv_sec: step.as_secs() as i64, tv_nsec: i64::from(step.subsec_nanos()) };
        // SAFETY: the array has that many elements; no signal mask is given.
        let ready = unsafe {
            let count = self.descriptors.len() as libc::nfds_t;
            libc::ppoll(self.descriptors.as_mut_ptr(), count, &time, std::ptr::null())
        };
        if ready > 0 {
            self.clear_errors();
        }
    }

    /// Something arrived: the next sleep is a short one again.
    #[inline]
    pub fn reset(&mut self) {
        self.step = FIRST_STEP;
    }

    /// Takes the errors of descriptors, since that of an interface that went down is "ready" for ever. If descriptors are ready by errors
    /// alone, sleeps.
    fn clear_errors(&mut self) {
        let failed = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        let mut readable = false;
        for poll in &self.descriptors {
            readable |= poll.revents & libc::POLLIN != 0;
            if poll.revents & failed != 0 {
                let mut error: libc::c_int = 0;
                let mut size = size_of::<libc::c_int>() as libc::socklen_t;
                // SAFETY: place and size are those of an int.
                unsafe {
                    libc::getsockopt(
                        poll.fd,
                        libc::SOL_SOCKET,
                        libc::SO_ERROR,
                        (&raw mut error).cast(),
                        &mut size,
                    )
                };
            }
        }
        if !readable {
            std::thread::sleep(LAST_STEP);
        }
    }
}

/// Short sleeps end when they should: the kernel else adds up to 50 µs.
fn exact_timers() {
    // SAFETY: concerns the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
}

/// The sockets of AF_XDP that the process has open, in ascending order.
pub(crate) fn xdp_sockets() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut sockets: Vec<RawFd> = numbers.filter(|&fd| domain(fd) == Some(libc::AF_XDP)).collect();
    sockets.sort_unstable();
    sockets
}

fn domain(fd: RawFd) -> Option<libc::c_int> {
    let mut domain: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: place and size are those of an int; a descriptor that is none, or no socket, is an error.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &mut size)
    };
    (result == 0).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn a_readable_descriptor_ends_the_wait() {
        let (mut writer, reader) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut waiter = Waiter::new([reader.as_raw_fd()], false);
        writer.write_all(b"x").expect("room");
        let start = Instant::now();
        waiter.wait(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn steps_grow_to_their_bound_and_start_again() {
        let mut waiter = Waiter::new([], true);
        for _ in 0..60 {
            waiter.wait(Duration::ZERO);
        }
        assert_eq!(waiter.step, LAST_STEP);
        waiter.reset();
        assert_eq!(waiter.step, FIRST_STEP);
    }

    #[test]
    fn a_broken_descriptor_does_not_hurry() {
        let mut waiter = Waiter::new([1 << 20], false);
        let start = Instant::now();
        waiter.wait(Duration::from_secs(10));
        let took = start.elapsed();
        assert!(took >= LAST_STEP && took < Duration::from_secs(5), "{took:?}");
    }
}
