//! Memory that a thread of its own gets ready, so that a packet thread does not wait for the kernel: for a huge page it may have to move other
//! pages, which takes some ten milliseconds.

use crate::{Block, lock};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

type Request = Box<dyn FnOnce() + Send>;

/// The way to the thread; none if it could not be started.
static SUPPLIER: OnceLock<Option<Mutex<Sender<Request>>>> = OnceLock::new();

/// Starts the thread, unless it runs already. It calls `begin` first, and inherits the cores of its caller, so a packet thread does not call
/// this. Without it, whoever needs memory waits for it.
pub fn start_supplier(begin: fn()) {
    SUPPLIER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        let run = move || {
            begin();
            requests.into_iter().for_each(|request| request());
        };
        let started = thread::Builder::new().name("mmb-memory".into()).spawn(run);
        started.is_ok().then(|| Mutex::new(sender))
    });
}

/// A block that was asked for, once it is ready.
#[derive(Debug)]
pub(crate) struct Supply<T>(Arc<Mutex<Option<Block<T>>>>);

impl<T: Send + 'static> Supply<T> {
    /// Asks for a block of `capacity` values, all of its pages in memory. `None` if nobody supplies it.
    pub(crate) fn request(capacity: usize) -> Option<Supply<T>> {
        let supplier = SUPPLIER.get()?.as_ref()?;
        let supply = Supply(Arc::default());
        let place = Arc::clone(&supply.0);
        let request = move || {
            if let Ok(mut block) = Block::try_new(capacity) {
                block.populate();
                *lock(&place) = Some(block);
            }
        };
        lock(supplier).send(Box::new(request)).ok()?;
        Some(supply)
    }

    /// The block, if it is ready.
    pub(crate) fn take(&self) -> Option<Block<T>> {
        self.0.try_lock().ok()?.take()
    }
}
