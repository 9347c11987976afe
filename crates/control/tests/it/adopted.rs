//! Clients that are connected already when the server adopts them: they are served, counted and disconnected like others.

use crate::common::{FOREVER, answer, ask, rules, start};
use mmb_control::{Server, ServerLimits, ServerOptions};
use mmb_protocol::Request;
use mmb_protocol::{Client, ClientError};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Returns both ends of a connection: one for the server, one with a timeout.
fn pair() -> (UnixStream, UnixStream) {
    let (theirs, ours) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(FOREVER)).expect("sets");
    (theirs, ours)
}

fn adopted(server: &Server) -> Client {
    let (theirs, ours) = pair();
    server.adopt(theirs);
    Client::from_stream(ours)
}

/// Returns the rules in force, as this client lists them.
fn listed(client: &mut Client) -> Vec<String> {
    let (answers, end) = ask(client, &Request::Run(vec!["list".into()]));
    assert!(end.ok, "{answers:?}");
    rules(&answers)
}

#[test]
fn a_server_without_a_socket_serves_adopted_clients() {
    let mut mmb = start("add all accept");
    mmb.server = None;
    let server = Server::unbound(Arc::clone(&mmb.daemon), ServerLimits::default());
    let (mut one, mut other) = (adopted(&server), adopted(&server));
    let (_, end) = ask(&mut one, &Request::Run(vec!["add tcp-dport 80 drop".into()]));
    assert!(end.ok);
    assert_eq!(listed(&mut other), ["1 add all accept", "2 add tcp-dport 80 drop"]);
    assert!(UnixStream::connect(&mmb.path).is_err(), "there is no other way in");
}

#[test]
fn adopted_clients_and_those_of_the_socket_share_the_slots() {
    let mut mmb = start("");
    mmb.server = None;
    let limits = ServerLimits { clients: 2, reserved: 0, ..ServerLimits::default() };
    let options = ServerOptions { limits, ..ServerOptions::default() };
    let server = Server::bind_with(&mmb.path, Arc::clone(&mmb.daemon), options).expect("binds");
    let (mut by_socket, mut by_hand) = (mmb.client(), adopted(&server));
    assert!(listed(&mut by_socket).is_empty() && listed(&mut by_hand).is_empty());
    let (theirs, mut refused) = pair();
    server.adopt(theirs);
    let told = answer(&refused);
    assert!(told[0]["error"]["error"].as_str().is_some_and(|error| error.contains("2 clients")), "{told:?}");
    assert_eq!(refused.read(&mut [0]).expect("is let go"), 0);
}

#[test]
fn a_shutdown_disconnects_adopted_clients() {
    let mut mmb = start("");
    mmb.server = None;
    let server = Server::unbound(Arc::clone(&mmb.daemon), ServerLimits::default());
    let (theirs, mut half) = pair();
    server.adopt(theirs);
    half.write_all(b"{").expect("writes");
    let mut idle = adopted(&server);
    assert!(listed(&mut idle).is_empty());
    server.shutdown();
    let asked = idle.ask(&Request::Save, |_| Ok(()));
    assert!(matches!(asked, Err(ClientError::Lost | ClientError::Io(_))), "{asked:?}");
    assert_eq!(Arc::strong_count(&mmb.daemon), 1, "no thread is left that knows the daemon");
}
