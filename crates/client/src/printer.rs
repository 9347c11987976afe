//! Printers of answers: for people ([`HumanPrinter`]) and as JSON ([`JsonPrinter`]).

mod answer_printer;
mod connection_listing;
mod counter_listing;
mod history_listing;
mod human;
mod json;
mod log_listing;
mod offload;
mod packet_listing;
mod rates;
mod server_listing;
mod set_listing;
mod stream_listing;
mod text_table;

pub(crate) use answer_printer::AnswerPrinter;
pub use connection_listing::left_out;
pub(crate) use human::HumanPrinter;
pub(crate) use json::JsonPrinter;
pub(crate) use packet_listing::ends;
pub use packet_listing::traced_text;
pub use rates::number as rate_text;
