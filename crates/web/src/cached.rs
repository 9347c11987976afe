//! An answer of the daemon that is kept for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How many times as long as it took an answer is kept, so that the daemon is busy with it for a tenth of the time at most.
const TIMES_ITS_COST: u32 = 10;

/// The last answer and its time. Requests that come while it is fetched wait for it instead of asking again.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    min_age: Duration,
    last: Mutex<Option<Kept<T>>>,
}

#[derive(Debug)]
struct Kept<T> {
    value: Arc<T>,
    taken: Instant,
    good_for: Duration,
}

impl<T> Cached<T> {
    /// Keeps answers for this time, or longer if they are costly.
    pub(crate) fn new(min_age: Duration) -> Cached<T> {
        Cached { min_age, last: Mutex::new(None) }
    }

    /// The last answer, or a new one if that is too old; and its age.
    ///
    /// # Errors
    /// `fetch` failed.
    pub(crate) async fn value<E>(
        &self,
        fetch: impl Future<Output = Result<T, E>>,
    ) -> Result<(Arc<T>, Duration), E> {
        let mut last = self.last.lock().await;
        if let Some(kept) = last.as_ref().filter(|kept| kept.taken.elapsed() < kept.good_for) {
            return Ok((Arc::clone(&kept.value), kept.taken.elapsed()));
        }
        let begun = Instant::now();
        let value = Arc::new(fetch.await?);
        let good_for = self.min_age.max(begun.elapsed() * TIMES_ITS_COST);
        *last = Some(Kept { value: Arc::clone(&value), taken: Instant::now(), good_for });
        Ok((value, Duration::ZERO))
    }

    /// Forgets the answer, since something was changed.
    pub(crate) async fn forget(&self) {
        *self.last.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn an_answer_is_fetched_once_until_it_is_forgotten() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let cached = Cached::new(Duration::from_secs(3600));
            let value = async |n: u32| {
                let (value, _) = cached.value(async { Ok::<_, Infallible>(n) }).await.expect("infallible");
                *value
            };
            assert_eq!((value(1).await, value(2).await), (1, 1));
            cached.forget().await;
            assert_eq!(value(3).await, 3);
            let failed = Cached::<u32>::new(Duration::from_secs(3600));
            assert_eq!(failed.value(async { Err("no") }).await.map(|(value, _)| *value), Err("no"));
            let (value, _) = failed.value(async { Ok::<_, &str>(4) }).await.expect("fetched");
            assert_eq!(*value, 4, "an error is not kept");
        });
    }
}
