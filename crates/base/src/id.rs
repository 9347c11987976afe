//! Ids: the numbers by which tables know their entries, each kind a type of its own.

use std::fmt::Debug;
use std::hash::Hash;

/// An id: a number from 1 on, so that an `Option` of it takes four bytes. [`id_types!`](crate::id_types) defines types of ids.
///
/// A table by id is indexed by the number itself and leaves its entry 0 unused, so that no access pays for a conversion.
pub trait Id: Copy + Debug + Eq + Hash {
    /// The first id.
    const FIRST: Self;

    /// The id with this number; `None` for 0.
    fn new(number: u32) -> Option<Self>;

    /// Its number, from 1 on.
    fn number(self) -> u32;

    /// Its number as an index.
    #[inline(always)]
    fn index(self) -> usize {
        self.number() as usize
    }
}

/// Defines types that implement [`Id`]: `id_types! { /// A worker's connection. pub struct ConnId; }`.
#[macro_export]
macro_rules! id_types {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $vis struct $name(::std::num::NonZeroU32);

        impl $crate::Id for $name {
            const FIRST: $name = $name(::std::num::NonZeroU32::MIN);

            #[inline(always)]
            fn new(number: u32) -> Option<$name> {
                ::std::num::NonZeroU32::new(number).map($name)
            }

            #[inline(always)]
            fn number(self) -> u32 {
                self.0.get()
            }
        }
    )+};
}
