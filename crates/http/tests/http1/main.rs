//! HTTP/1.x as RFC 9110 and RFC 9112 have it, rule by rule; and that it makes no difference how the bytes are cut.

mod bodies;
mod cuts;
mod headers;
mod odd;
mod pairing;
mod script;
mod strict;
