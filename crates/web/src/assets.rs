//! The files of the page, which are a part of the program.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// A file of the page.
pub(crate) struct Asset {
    /// Its path in URLs.
    pub(crate) path: &'static str,
    media_type: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $file:literal, $media_type:expr) => {
        Asset { path: $path, media_type: $media_type, content: include_str!(concat!("../assets/", $file)) }
    };
}

/// All files of the page.
pub(crate) static ASSETS: &[Asset] = &[
    asset!("/", "index.html", HTML),
    asset!("/style.css", "style.css", CSS),
    asset!("/icon.svg", "icon.svg", SVG),
    asset!("/app.js", "app.js", SCRIPT),
    asset!("/api.js", "api.js", SCRIPT),
    asset!("/changes.js", "changes.js", SCRIPT),
    asset!("/dom.js", "dom.js", SCRIPT),
    asset!("/format.js", "format.js", SCRIPT),
    asset!("/plot.js", "plot.js", SCRIPT),
    asset!("/editor.js", "editor.js", SCRIPT),
    asset!("/views/overview.js", "views/overview.js", SCRIPT),
    asset!("/views/rules.js", "views/rules.js", SCRIPT),
    asset!("/views/connections.js", "views/connections.js", SCRIPT),
    asset!("/views/drops.js", "views/drops.js", SCRIPT),
    asset!("/views/explain.js", "views/explain.js", SCRIPT),
    asset!("/views/history.js", "views/history.js", SCRIPT),
    asset!("/views/policy.js", "views/policy.js", SCRIPT),
];

impl IntoResponse for &Asset {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.media_type)], self.content).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_write_no_html() {
        for asset in ASSETS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "DOMParser",
                "srcdoc",
            ] {
                assert!(!asset.content.contains(forbidden), "{}: {forbidden}", asset.path);
            }
        }
    }

    #[test]
    fn the_page_asks_nobody_else() {
        for asset in ASSETS {
            let content = asset.content.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !content.contains("http:") && !content.contains("https:") && !content.contains("url("),
                "{}",
                asset.path
            );
        }
        let page = ASSETS[0].content;
        assert!(
            !page.contains("style=") && !page.contains(" onclick") && !page.contains(" onload"),
            "the CSP would refuse it"
        );
        assert_eq!(page.matches("<script").count(), 1);
        for name in page.split('"').filter(|word| word.starts_with('/')) {
            assert!(ASSETS.iter().any(|asset| asset.path == name), "{name}");
        }
    }

    #[test]
    fn scripts_import_files_that_are_served() {
        let scripts = ASSETS.iter().filter(|asset| asset.media_type == SCRIPT);
        let imports =
            scripts.flat_map(|asset| asset.content.lines()).filter(|line| line.starts_with("import "));
        for line in imports {
            let path = line.rsplit('"').nth(1).unwrap_or_default();
            assert!(ASSETS.iter().any(|asset| asset.path == path), "{line}");
        }
    }
}
