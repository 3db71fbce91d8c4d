//! One key that an issuer publishes, and what it may verify.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::Value;

/// A key that can verify signatures.
pub struct Key {
    jwk: Jwk,
    /// What verifies with it.
    pub decoding: DecodingKey,
}

impl Key {
    /// From what an issuer publishes; `None` when it verifies no signature.
    pub fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        // A shared secret has no place in a public document, and would verify what anyone can sign.
        if matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            return None;
        }
        let decoding = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { jwk, decoding })
    }

    /// Its `kid`, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.jwk.common.key_id.as_deref()
    }

    /// Whether it may verify a signature of this algorithm.
    pub fn suits(&self, algorithm: Algorithm) -> bool {
        let common = &self.jwk.common;
        let named = common
            .key_algorithm
            .is_none_or(|named| named.to_string() == format!("{algorithm:?}"));
        let signs = common
            .public_key_use
            .as_ref()
            .is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let kind = match (&self.jwk.algorithm, algorithm) {
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => key.curve == EllipticCurve::P384,
            (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
            (AlgorithmParameters::RSA(_), _) => algorithm.family() == AlgorithmFamily::Rsa,
            _ => false,
        };
        named && signs && verifies && kind
    }
}
