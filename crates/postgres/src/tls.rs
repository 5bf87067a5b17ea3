//! Encrypted connections, by rustls.
//!
//! Invariant: what the address asks to be checked is checked before the first byte of a password is
//! sent. That the server has the key of its certificate is checked always.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::security::Check;

/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Makes encrypted connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// One that checks certificates; an error says what the person who gave the address has to do.
    pub fn new(check: &Check) -> Result<Connector, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier {
            roots: match check {
                Check::Nothing => None,
                Check::Signed { root, .. } => Some(roots(root.as_deref(), &provider)?),
            },
            is_host: matches!(check, Check::Signed { is_host: true, .. }),
            provider: Arc::clone(&provider),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("no encrypted connections can be made: {e}: report this"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Connector {
            config: Arc::new(config),
        })
    }
}

/// Checks signatures by the certificates of a file, or by those of the system.
fn roots(
    file: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let system = || {
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let known = SYSTEM_ROOTS.iter().map(PathBuf::from);
        named.into_iter().chain(known).find(|path| path.is_file())
    };
    let path = file.map(Path::to_owned).or_else(system);
    let path = path.ok_or(
        "this system has no file of certificates that it trusts: name one in the address, \
         sslrootcert=FILE",
    )?;
    let unreadable = |why: String| {
        let place = path.display();
        format!("the certificates in {place} cannot be read ({why}): check sslrootcert")
    };
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&path).map_err(|e| unreadable(e.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|e| unreadable(e.to_string()))?;
        let added = store.add(certificate);
        // A system's file may have some that are too odd; one that was named must not.
        if let (Err(e), Some(_)) = (added, file) {
            return Err(unreadable(e.to_string()));
        }
    }
    if store.is_empty() {
        return Err(unreadable("there is none".into()));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|e| unreadable(e.to_string()))
}

/// Checks what was asked for, and no more.
#[derive(Debug)]
struct Verifier {
    roots: Option<Arc<WebPkiServerVerifier>>,
    is_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last, when the signatures have been found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        Ok(Handshake {
            config: Arc::clone(&self.config),
            host: domain.to_owned(),
        })
    }
}

/// A connection that is about to be encrypted.
pub(crate) struct Handshake {
    config: Arc<ClientConfig>,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let connector = tokio_rustls::TlsConnector::from(self.config);
            let stream = connector.connect(host, stream).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted<S>(Box<client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
