//! What jsonwebtoken verifies signatures with: ring, which TLS uses here too, and for public keys alone. There is no way here to
//! verify with a shared secret, nor to sign.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as Wrong, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// Chooses it for this process. Again is fine.
pub fn install() {
    let _ = RING.install_default();
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(refused()),
    verifier_factory: verifier,
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(refused()),
        rsa_pub_components_from_public_key: |_| Err(refused()),
        ec_pub_components_from_private_key: |_, _| Err(refused()),
        ed_pub_components_from_private_key: |_, _| Err(refused()),
        compute_digest: |_, _| Err(refused()),
    },
};

fn refused() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let key = match (key.family(), key.kind()) {
        (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => Key::Rsa {
            parameters: rsa(*algorithm).ok_or_else(refused)?,
            // ring wants numbers without zeros in front, and so does RFC 7518; some issuers put one there.
            n: without_zeros(n),
            e: without_zeros(e),
        },
        (AlgorithmFamily::Ec | AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(point)) => Key::Curve {
            algorithm: curve(*algorithm).ok_or_else(refused)?,
            point: point.clone(),
        },
        _ => return Err(refused()),
    };
    if algorithm.family() == AlgorithmFamily::Hmac {
        return Err(refused());
    }
    Ok(Box::new(ByRing {
        algorithm: *algorithm,
        key,
    }))
}

fn without_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// RSA keys of 2,048 to 8,192 bits.
fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &signature::ED25519,
        _ => return None,
    })
}

enum Key {
    Rsa {
        parameters: &'static RsaParameters,
        n: Vec<u8>,
        e: Vec<u8>,
    },
    Curve {
        algorithm: &'static dyn VerificationAlgorithm,
        point: Vec<u8>,
    },
}

struct ByRing {
    algorithm: Algorithm,
    key: Key,
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Wrong> {
        let verified = match &self.key {
            Key::Rsa { parameters, n, e } => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature),
            Key::Curve { algorithm, point } => UnparsedPublicKey::new(*algorithm, point).verify(message, signature),
        };
        verified.map_err(|_| Wrong::new())
    }
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
