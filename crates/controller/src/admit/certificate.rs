//! The webhook's certificate: made here, its key never leaves this process's memory. It is its
//! own trust anchor and can't sign others, so whoever reads the webhook's configuration gets
//! nothing to misuse.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// How long a certificate is valid.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// When another takes its place.
pub(crate) const RENEWAL: Duration = Duration::from_secs(60 * 24 * 3600);
/// How far the API server's clock may be behind.
const SKEW: Duration = Duration::from_secs(3600);

/// The certificate can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The service's name fits no certificate, or there is no randomness.
    #[error("can't make a certificate for {name}; check --webhook-service and the namespace")]
    Make {
        /// The name it is for.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// TLS doesn't take it.
    #[error("can't use the certificate made for {name}; please report it")]
    Use {
        /// The name it is for.
        name: String,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// A certificate and what is needed to serve with it.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// For the API server to trust.
    pub pem: String,
    /// For this process to serve with.
    pub tls: Arc<ServerConfig>,
}

/// Makes a certificate for `name`, the service's DNS name in the cluster. `identity` tells the
/// replicas' certificates apart for people; `now` is the wall clock.
///
/// # Errors
/// As [`CertificateError`] says.
pub fn make(name: &str, identity: &str, now: SystemTime) -> Result<Certificate, CertificateError> {
    let failed = |source| CertificateError::Make { name: name.to_owned(), source };
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch.saturating_sub(SKEW);
    params.not_after = epoch + since_epoch + LIFETIME;
    params.distinguished_name = DistinguishedName::new();
    // At most 64 characters go into a common name.
    let common_name: String = format!("gpu-dra webhook {identity}").chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let unusable = |source| CertificateError::Use { name: name.to_owned(), source };
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .map_err(unusable)?;
    Ok(Certificate { pem: certificate.pem(), tls: Arc::new(tls) })
}
