//! The configuration of TLS: version 1.3 only, with the certificates of clients if authorities are named.

use crate::options::TlsFiles;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The reason why the files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or is no PEM.
    #[error("{}: cannot read this as PEM", .0.display())]
    Pem(PathBuf, #[source] pem::Error),
    /// The file has no certificate.
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// The certificate and the key cannot be used.
    #[error("{}: certificate and key cannot be used together", .0.display())]
    Pair(PathBuf, #[source] rustls::Error),
    /// A certificate cannot be that of an authority.
    #[error("{}: a certificate cannot be that of an authority", .0.display())]
    Authority(PathBuf, #[source] rustls::Error),
    /// There is no usable authority.
    #[error("{}: no authority can be used", .0.display())]
    Verifier(PathBuf, #[source] VerifierBuilderError),
}

/// Reads the files.
///
/// # Errors
/// They cannot be used.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let unusable = |error| TlsError::Pair(files.certificate.clone(), error);
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?;
    let config = match &files.client_authorities {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| TlsError::Authority(path.clone(), error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config
                .with_client_cert_verifier(verifier.map_err(|error| TlsError::Verifier(path.clone(), error))?)
        }
    };
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::Pem(files.key.clone(), error))?;
    let mut config = config.with_single_cert(certificates(&files.certificate)?, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::Pem(path.to_owned(), error);
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(all) }
}
