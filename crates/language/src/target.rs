//! The table of targets: one module and one row for each.
//!
//! A module has its row, `INFO`, which says how the target is written, which fields it takes, and how it is checked, and the
//! function that prints it. The parser, completion, help and the reference are made from [`TARGETS`]; nothing else knows a
//! target by its name.

mod edit;
pub(crate) mod info;
mod operand;
mod text;

pub use info::TargetInfo;

macro_rules! targets {
    ($($target:ident)*) => {
        $(pub(crate) mod $target;)*

        /// Every target, in the order of help and reference.
        pub static TARGETS: &[TargetInfo] = &[$($target::INFO),*];
    };
}

targets! { modify add strip drop reject limit accept map shuffle lb log alert close mask digest helper }

/// The target of that name.
pub fn named(name: &str) -> Option<&'static TargetInfo> {
    TARGETS.iter().find(|info| info.name == name)
}

/// The targets that a rule may have.
pub(crate) fn allowed(stateful: bool) -> impl Iterator<Item = &'static TargetInfo> {
    TARGETS.iter().filter(move |info| stateful || !info.stateful)
}

#[cfg(test)]
mod tests {
    use super::TARGETS;
    use super::info::Slot;
    use mmb_policy::FIELDS;

    #[test]
    fn rows_are_whole() {
        for target in TARGETS {
            assert!(!target.help.is_empty() && !target.reference.is_empty(), "{}", target.name);
            let mut slots = target.slots.iter();
            let takes_field = slots.next().is_some_and(Slot::is_field);
            assert_eq!(FIELDS.iter().any(target.takes), takes_field, "{}", target.name);
            // Values are read as those of the field.
            let reads_value = |slot: &Slot| matches!(slot, Slot::Value | Slot::OptionalValue);
            assert!(takes_field || !slots.any(reads_value), "{}", target.name);
        }
    }

    #[test]
    fn each_synonym_stands_for_one_target() {
        let mut synonyms: Vec<_> = TARGETS.iter().flat_map(|target| target.synonyms).collect();
        let count = synonyms.len();
        synonyms.sort_unstable();
        synonyms.dedup();
        assert_eq!(synonyms.len(), count);
        assert!(synonyms.iter().all(|synonym| super::named(synonym).is_none()));
    }
}
