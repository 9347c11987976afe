//! Who is let in, and what answers tell a browser.

use crate::common::{Address, Web, options, serve, start, start_with};
use mmb_web::{Listen, WebOptions, WebServer};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const POST: &str = "Content-Type: application/json\r\n";
const NOTHING: &str = "{\"commands\":[]}";

/// The status of a change with these lines in the head of its request.
fn change(web: &Web, head: &str) -> u16 {
    web.request("POST", "/api/v1/commands", &format!("{POST}{head}"), NOTHING).status
}

#[test]
fn without_the_token_there_is_the_page_and_nothing_else() {
    let mmb = start("");
    let get = |path: &str| mmb.web.request("GET", path, "", "");
    for path in ["/", "/app.js", "/style.css", "/icon.svg", "/api/openapi.json"] {
        assert_eq!(get(path).status, 200, "{path}");
    }
    for path in
        ["/api/v1/state", "/api/v1/rules", "/api/v1/policy", "/metrics", "/api/v1/nothing", "/api/v1/server"]
    {
        let reply = get(path);
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(reply.headers["www-authenticate"], "Bearer realm=\"mmb\"");
    }
    let token = mmb.web.token.clone().expect("a token");
    assert_eq!(get(&format!("/api/v1/state?token={token}")).status, 401, "not in a URL");
    assert_eq!(change(&mmb.web, "X-Mmb-Request: 1\r\n"), 401, "no header stands for the token");
    assert_eq!(change(&mmb.web, &format!("Authorization: Bearer {token}\r\n")), 200);
    for body in [get("/").body, get("/app.js").body, mmb.get("/api/v1/state").body, mmb.get("/metrics").body]
    {
        assert!(!body.contains(&token));
    }
}

#[test]
fn every_answer_has_the_headers_of_a_careful_site() {
    let mmb = start("");
    let token = mmb.web.token.clone().expect("a token");
    let with_token = format!("Authorization: Bearer {token}\r\n");
    for (path, head) in [
        ("/", ""),
        ("/metrics", &with_token),
        ("/nothing", ""),
        ("/api/v1/state", ""),
        ("/", "Host: evil.example\r\n"),
    ] {
        let reply = mmb.web.request("GET", path, head, "");
        let policy = &reply.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["referrer-policy"], "no-referrer");
        assert_eq!(reply.headers["cache-control"], "no-store");
        assert!(!reply.headers.contains_key("access-control-allow-origin"));
    }
}

#[test]
fn other_sites_and_rebound_names_get_nothing() {
    let mmb = start("");
    let token = format!("Authorization: Bearer {}\r\n", mmb.web.token.clone().expect("a token"));
    assert_eq!(change(&mmb.web, &format!("{token}Host: evil.example\r\n")), 421);
    assert_eq!(mmb.web.request("GET", "/", "Host: evil.example:8090\r\n", "").status, 421);
    assert_eq!(change(&mmb.web, &format!("{token}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(change(&mmb.web, &format!("{token}Origin: http://evil.example\r\n")), 403);
    assert_eq!(change(&mmb.web, &format!("{token}Origin: http://localhost\r\n")), 200);
}

#[test]
fn a_unix_socket_lets_in_whom_its_mode_lets_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("web.sock");
    let mmb = start_with("", |options| WebOptions { listen: Listen::Unix(path.clone()), ..options });
    assert!(matches!(&mmb.web.address, Address::Unix(found) if *found == path));
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(mmb.web.token, None);
    assert_eq!(mmb.get("/api/v1/state").status, 200);
    assert_eq!(change(&mmb.web, ""), 403, "another site could send this through a forwarded port");
    assert_eq!(change(&mmb.web, "X-Mmb-Request: 1\r\n"), 200);
    assert_eq!(mmb.web.request("GET", "/api/v1/state", "Host: evil.example\r\n", "").status, 421);
}

#[test]
fn the_token_of_the_metrics_opens_the_metrics_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("metrics-token");
    let mmb = start_with("", |options| WebOptions { metrics_token_file: Some(file.clone()), ..options });
    let token = std::fs::read_to_string(&file).expect("it was made");
    let head = format!("Authorization: Bearer {}\r\n", token.trim());
    let status = |path: &str| mmb.web.request("GET", path, &head, "").status;
    assert_eq!((status("/metrics"), status("/api/v1/state")), (200, 401));
    assert_eq!(mmb.get("/metrics").status, 200, "the other one opens them too");
}

#[test]
fn names_behind_a_proxy_are_given_as_options() {
    let directory = tempfile::tempdir().expect("a directory");
    let web = serve(&WebOptions {
        hosts: vec!["Gate.example".into()],
        ..options(directory.path().join("no-daemon"))
    });
    let status = |host: &str| web.request("GET", "/", &format!("Host: {host}\r\n"), "").status;
    assert_eq!((status("gate.example"), status("localhost:1"), status("other.example")), (200, 200, 421));
}

#[test]
fn nothing_listens_where_it_should_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |change: &dyn Fn(WebOptions) -> WebOptions| {
        let error =
            WebServer::bind(&change(options(directory.path().join("mmb.sock")))).expect_err("refused");
        error.to_string()
    };
    let message = refused(&|options| WebOptions {
        listen: Listen::Tcp("0.0.0.0:0".parse().expect("an address")),
        ..options
    });
    assert!(message.contains("--tls-cert"), "{message}");
    let public = directory.path().join("public");
    std::fs::write(&public, "0123456789abcdef\n").expect("writes");
    std::fs::set_permissions(&public, PermissionsExt::from_mode(0o644)).expect("sets");
    let message = refused(&|options| WebOptions { token_file: Some(public.clone()), ..options });
    assert!(message.contains("every user can read this token"), "{message}");
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let mmb = start("");
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &[0xff; 40_000], b""]
    {
        if !garbage.is_empty() {
            let reply = mmb.web.raw(&[garbage, b"\r\n\r\n"].concat());
            assert!(
                reply.is_empty() || reply.starts_with(b"HTTP/1.1 4"),
                "{:?}",
                String::from_utf8_lossy(&reply)
            );
        }
        assert_eq!(mmb.get("/api/v1/state").status, 200);
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(100_000));
    assert!(mmb.web.raw(long.as_bytes()).starts_with(b"HTTP/1.1 4"));
    let reply = mmb.web.authorized("GET", "/api/v1/rules?q=%ff%00%3Cimg%20src=x%20onerror=alert(1)%3E", None);
    assert!(matches!(reply.status, 200 | 400), "{reply:?}");
    assert_eq!(mmb.send("POST", "/api/v1/commands", &Value::String("x".repeat(1 << 20))).status, 400);
}
