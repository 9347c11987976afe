//! Who may ask what: decisions about the head of a request, without I/O.

use crate::options::WebOptions;
use crate::problem::Problem;
use crate::token::{Token, TokenError};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};

/// A header that no form and no image of another site can send: requests that change something have it, or a token.
pub(crate) const REQUEST_HEADER: HeaderName = HeaderName::from_static("x-mmb-request");

/// What browsers say about the site that a request comes from (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names of this machine that no other site can take.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Who may ask what.
#[derive(Debug)]
pub(crate) struct Access {
    /// What a client proves by; `None`: whoever connects is let in, by the mode of the socket or a certificate.
    pub(crate) token: Option<Token>,
    /// A token that is good for the metrics alone.
    metrics_token: Option<Token>,
    /// The names in `Host`; `None`: any, since the certificate has them.
    hosts: Option<Vec<String>>,
    read_only: bool,
}

/// What a path is, to those who decide about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// The page itself and the description of the API, which are the same everywhere.
    Public,
    /// The metrics.
    Metrics,
    /// Everything else.
    Api,
}

impl Area {
    /// The area of a path.
    pub(crate) fn of(path: &str) -> Area {
        match path {
            "/metrics" => Area::Metrics,
            path if path.starts_with("/api/v1/") => Area::Api,
            _ => Area::Public,
        }
    }
}

impl Access {
    /// Reads or makes the tokens.
    ///
    /// # Errors
    /// A file of a token cannot be used, or the system gives no random numbers.
    pub(crate) fn new(options: &WebOptions) -> Result<Access, TokenError> {
        let token = match &options.token_file {
            Some(path) => Some(Token::from_file(path)?),
            None if options.needs_token() => Some(Token::random()?),
            None => None,
        };
        let metrics_token = options.metrics_token_file.as_deref().map(Token::from_file).transpose()?;
        let given = options.hosts.iter().map(|host| host.to_ascii_lowercase());
        let hosts = match (options.is_local(), options.hosts.is_empty()) {
            (true, _) => Some(LOCAL_NAMES.map(str::to_owned).into_iter().chain(given).collect()),
            (false, false) => Some(given.collect()),
            (false, true) => None,
        };
        Ok(Access { token, metrics_token, hosts, read_only: options.read_only })
    }

    /// Decides about a request.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn decide(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
        self.host(headers)?;
        let area = Area::of(path);
        if area == Area::Public {
            return Ok(());
        }
        let has_token = self.token(area, headers)?;
        if method.is_safe() {
            return Ok(());
        }
        from_this_site(headers)?;
        if !has_token && !headers.contains_key(REQUEST_HEADER) {
            let detail = "a request that is not a GET needs the header `X-Mmb-Request: 1`, so that no other site can send it";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(())
    }

    /// Refuses what changes something, if this server only shows.
    ///
    /// # Errors
    /// It only shows.
    pub(crate) fn may_change(&self) -> Result<(), Problem> {
        match self.read_only {
            true => Err(Problem::new(StatusCode::FORBIDDEN, "this server was started with --read-only")),
            false => Ok(()),
        }
    }

    /// Whether this server only shows.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A site whose name leads to this machine (DNS rebinding) sends its own name.
    fn host(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let mut given = headers.get_all(header::HOST).iter();
        let host = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
            _ => None,
        };
        let name = host.as_ref().map(|host| host.host().to_ascii_lowercase());
        match name {
            Some(name) if hosts.contains(&name) => Ok(()),
            _ => {
                let detail = "the Host of the request is not one of this server; name others with --host";
                Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
            }
        }
    }

    /// Whether the request has a token for the area; it needs none if there is none.
    fn token(&self, area: Area, headers: &HeaderMap) -> Result<bool, Problem> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
        });
        let has =
            |token: &Option<Token>| token.as_ref().zip(given).is_some_and(|(token, given)| token.is(given));
        let has_token = has(&self.token);
        if has_token || area == Area::Metrics && has(&self.metrics_token) {
            return Ok(has_token);
        }
        // A token that is given and wrong is an error also where none is needed.
        if self.token.is_none() && given.is_none() {
            return Ok(false);
        }
        let detail = "a token is needed: `Authorization: Bearer TOKEN`, with the token that `mmb web` printed or that of --token-file";
        Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
    }
}

/// Refuses a request that a browser sends for another site.
fn from_this_site(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = || Problem::new(StatusCode::FORBIDDEN, "requests from other sites are refused");
    if let Some(site) = headers.get(FETCH_SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(refused());
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match (origin, host) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(token: Option<&str>, hosts: Option<&[&str]>) -> Access {
        let file = |text: &str| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("token");
            std::fs::write(&path, text).expect("writes");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("sets");
            Token::from_file(&path).expect("a token")
        };
        Access {
            token: token.map(file),
            metrics_token: Some(file("metrics-0123456789")),
            hosts: hosts.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect()),
            read_only: false,
        }
    }

    fn status(access: &Access, method: Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        access.decide(&method, path, &map).map_or_else(|problem| problem.into_status(), |()| 200)
    }

    const API: &str = "/api/v1/state";
    const TOKEN: &str = "0123456789abcdef";
    const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");

    #[test]
    fn the_token_opens_the_api_and_nothing_else_does() {
        let access = access(Some(TOKEN), None);
        let get = |path: &str, headers: &[(&'static str, &str)]| status(&access, Method::GET, path, headers);
        assert_eq!(get("/", &[]), 200);
        assert_eq!(get("/api/openapi.json", &[]), 200);
        assert_eq!(get(API, &[BEARER]), 200);
        assert_eq!(get(API, &[("authorization", "bearer 0123456789abcdef")]), 200);
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Basic 0123456789abcdef", "0123456789abcdef"]
        {
            assert_eq!(get(API, &[("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!((get(API, &[]), get("/metrics", &[]), get("/metrics", &[BEARER])), (401, 401, 200));
        let metrics = ("authorization", "Bearer metrics-0123456789");
        assert_eq!((get("/metrics", &[metrics]), get(API, &[metrics])), (200, 401));
        assert_eq!(status(&access, Method::POST, API, &[BEARER]), 200);
    }

    #[test]
    fn without_a_token_changes_need_a_header_that_other_sites_cannot_send() {
        let access = access(None, None);
        let post = |headers: &[(&'static str, &str)]| status(&access, Method::POST, API, headers);
        assert_eq!(status(&access, Method::GET, API, &[]), 200);
        assert_eq!(post(&[]), 403);
        assert_eq!(post(&[("x-mmb-request", "1")]), 200);
        assert_eq!(post(&[BEARER]), 401, "a token that this server does not have");
    }

    #[test]
    fn other_sites_change_nothing_even_with_the_header() {
        for access in [access(None, None), access(Some(TOKEN), None)] {
            let post = |headers: &[(&'static str, &str)]| {
                let mut all = vec![("x-mmb-request", "1"), ("host", "127.0.0.1:80")];
                all.extend(access.token.is_some().then_some(BEARER));
                all.extend(headers);
                status(&access, Method::POST, API, &all)
            };
            assert_eq!(post(&[]), 200);
            assert_eq!(post(&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:80")]), 200);
            for site in ["cross-site", "same-site", ""] {
                assert_eq!(post(&[("sec-fetch-site", site)]), 403, "{site}");
            }
            for origin in ["null", "http://evil.example", "http://127.0.0.1:81", "127.0.0.1:80"] {
                assert_eq!(post(&[("origin", origin)]), 403, "{origin}");
            }
        }
    }

    #[test]
    fn a_name_that_is_not_this_machines_is_refused() {
        let access = access(None, Some(&["localhost", "127.0.0.1", "[::1]", "gate.example"]));
        let get = |host: &str| status(&access, Method::GET, "/", &[("host", host)]);
        for host in ["localhost", "LOCALHOST:8090", "127.0.0.1:8090", "[::1]:8090", "gate.example"] {
            assert_eq!(get(host), 200, "{host}");
        }
        for host in
            ["evil.example:8090", "localhost.evil.example", "", "127.0.0.1:x y", "2130706433", "127.0.0.2"]
        {
            assert_eq!(get(host), 421, "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&access, Method::GET, "/", &two), 421);
        assert_eq!(status(&access, Method::GET, "/", &[]), 421);
    }
}
