//! The message of a client's hello (RFC 8446, section 4.1.2), from fragments of any length.
//!
//! The message is a sequence of fields, most of them a number or as many opaque bytes as the number before says.
//! [`Hello::next_field`] is the table of what follows what.

use super::progress::HelloProgress;
use crate::host::without_trailing_dot;
use std::ops::ControlFlow;

/// The type of the message.
const CLIENT_HELLO: u32 = 1;
/// The longest message, with its type and length.
const LONGEST_MESSAGE: u32 = 64 << 10;
/// Bytes of the message's type and length.
const TYPE: u32 = 1;
const LENGTH: u32 = 3;
/// Bytes of the version and the random value.
const VERSION_AND_RANDOM: u32 = 2 + 32;
/// The type of the extension that has the server name.
const SERVER_NAME: u32 = 0;
/// The type of a name in its list: a host's.
const HOST_NAME: u32 = 0;
const LONGEST_NAME: usize = 255;

/// A field of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Type,
    Length,
    VersionAndRandom,
    SessionLength,
    Session,
    SuitesLength,
    Suites,
    MethodsLength,
    Methods,
    ExtensionsLength,
    ExtensionType,
    ExtensionLength,
    Extension,
    /// Of the extension that has the server name.
    ServerNameLength,
    NamesLength,
    NameType,
    NameLength,
    Name,
    /// Of a name that is not a host's.
    OtherNameLength,
    OtherName,
}

/// Whether the message goes on after a field, or what is decided.
type Step = ControlFlow<HelloProgress>;

const INVALID: Step = Step::Break(HelloProgress::Invalid);

/// What is known of the message.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    field: Field,
    /// Whether there was an extension with the server name.
    has_extension: bool,
    /// Bytes of `field` that are still to come.
    field_left: u32,
    /// The bytes of `field` so far as a number; meaningless if the field is not one.
    number: u32,
    /// Bytes of the message behind `field`, or behind the extension that has the server name while that is read.
    message_left: u32,
    /// Bytes of the extension that has the server name behind `field`; 0 outside it.
    extension_left: u32,
    /// Bytes in `name`; 0 if there was no name.
    name_len: u8,
    name: [u8; LONGEST_NAME],
}

impl Default for Hello {
    fn default() -> Self {
        Hello {
            field: Field::Type,
            has_extension: false,
            field_left: TYPE,
            number: 0,
            message_left: LENGTH,
            extension_left: 0,
            name_len: 0,
            name: [0; LONGEST_NAME],
        }
    }
}

impl Hello {
    /// Reads the next bytes of the message.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Step {
        while !bytes.is_empty() {
            let len = bytes.len().min(self.field_left as usize);
            let (part, rest) = bytes.split_at(len);
            self.read_field(part)?;
            self.field_left -= len as u32;
            bytes = rest;
            while self.field_left == 0 {
                self.next_field()?;
            }
        }
        Step::Continue(())
    }

    /// The server name, if the message was [`HelloProgress::Named`].
    pub(super) fn name(&self) -> &[u8] {
        without_trailing_dot(&self.name[..usize::from(self.name_len)])
    }

    fn read_field(&mut self, part: &[u8]) -> Step {
        match self.field {
            Field::VersionAndRandom
            | Field::Session
            | Field::Suites
            | Field::Methods
            | Field::Extension
            | Field::OtherName => {}
            Field::Name => {
                for byte in part {
                    if !byte.is_ascii_alphanumeric() && !b"-_.".contains(byte) {
                        return INVALID;
                    }
                    // The length was checked before the name began.
                    self.name[usize::from(self.name_len)] = byte.to_ascii_lowercase();
                    self.name_len += 1;
                }
            }
            Field::Type
            | Field::Length
            | Field::SessionLength
            | Field::SuitesLength
            | Field::MethodsLength
            | Field::ExtensionsLength
            | Field::ExtensionType
            | Field::ExtensionLength
            | Field::ServerNameLength
            | Field::NamesLength
            | Field::NameType
            | Field::NameLength
            | Field::OtherNameLength => {
                // No number has more than three bytes.
                self.number = part.iter().fold(self.number, |number, byte| number << 8 | u32::from(*byte));
            }
        }
        Step::Continue(())
    }

    /// Begins the field after one that is complete.
    fn next_field(&mut self) -> Step {
        let number = self.number;
        match self.field {
            Field::Type if number == CLIENT_HELLO => self.begin(Field::Length, LENGTH),
            Field::Type => INVALID,
            Field::Length if number > LONGEST_MESSAGE - TYPE - LENGTH => INVALID,
            Field::Length => {
                self.message_left = number;
                self.begin(Field::VersionAndRandom, VERSION_AND_RANDOM)
            }
            Field::VersionAndRandom => self.begin(Field::SessionLength, 1),
            Field::SessionLength => self.begin(Field::Session, number),
            Field::Session => self.begin(Field::SuitesLength, 2),
            Field::SuitesLength => self.begin(Field::Suites, number),
            Field::Suites => self.begin(Field::MethodsLength, 1),
            Field::MethodsLength => self.begin(Field::Methods, number),
            // A hello of before TLS 1.3 may end here.
            Field::Methods if self.message_left == 0 => Step::Break(HelloProgress::Nameless),
            Field::Methods => self.begin(Field::ExtensionsLength, 2),
            Field::ExtensionsLength if number != self.message_left => INVALID,
            Field::ExtensionsLength | Field::Extension => self.next_extension(),
            Field::ExtensionType if number != SERVER_NAME => self.begin(Field::ExtensionLength, 2),
            Field::ExtensionType if self.has_extension => INVALID,
            Field::ExtensionType => {
                self.has_extension = true;
                self.begin(Field::ServerNameLength, 2)
            }
            Field::ExtensionLength => self.begin(Field::Extension, number),
            Field::ServerNameLength => match self.message_left.checked_sub(number) {
                Some(left) => {
                    (self.message_left, self.extension_left) = (left, number);
                    self.begin_inside(Field::NamesLength, 2)
                }
                None => INVALID,
            },
            Field::NamesLength if number == 0 || number != self.extension_left => INVALID,
            Field::NamesLength => self.begin_inside(Field::NameType, 1),
            Field::NameType if number != HOST_NAME => self.begin_inside(Field::OtherNameLength, 2),
            Field::NameType if self.name_len != 0 => INVALID,
            Field::NameType => self.begin_inside(Field::NameLength, 2),
            Field::NameLength if number == 0 || number > LONGEST_NAME as u32 => INVALID,
            Field::NameLength => self.begin_inside(Field::Name, number),
            Field::OtherNameLength => self.begin_inside(Field::OtherName, number),
            Field::Name | Field::OtherName if self.extension_left == 0 => self.next_extension(),
            Field::Name | Field::OtherName => self.begin_inside(Field::NameType, 1),
        }
    }

    fn next_extension(&mut self) -> Step {
        if self.message_left != 0 { self.begin(Field::ExtensionType, 2) } else { self.decide() }
    }

    /// Begins a field of the message outside the extension that has the server name.
    fn begin(&mut self, field: Field, len: u32) -> Step {
        let Some(left) = self.message_left.checked_sub(len) else { return INVALID };
        (self.field, self.field_left, self.number, self.message_left) = (field, len, 0, left);
        Step::Continue(())
    }

    /// Begins a field inside the extension that has the server name.
    fn begin_inside(&mut self, field: Field, len: u32) -> Step {
        let Some(left) = self.extension_left.checked_sub(len) else { return INVALID };
        (self.field, self.field_left, self.number, self.extension_left) = (field, len, 0, left);
        Step::Continue(())
    }

    /// Decides at the end of the message.
    fn decide(&self) -> Step {
        Step::Break(match self.name_len {
            0 => HelloProgress::Nameless,
            _ if self.name().split(|byte| *byte == b'.').any(<[u8]>::is_empty) => HelloProgress::Invalid,
            _ => HelloProgress::Named,
        })
    }
}
