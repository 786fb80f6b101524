import {
  createPrivateKey,
  type KeyObject,
  randomBytes,
  sign,
  verify,
  type X509Certificate,
} from 'node:crypto'

/** The longest PEM text of a key: RSA 8192 in PKCS#8 takes 6.4 KiB. Characters. */
const PEM_LIMIT = 16_384

/**
 * Reads a private key from PEM: PKCS#8, PKCS#1 or SEC1. Throws an Error where there is none, where it is
 * sealed with a password, or the text is longer than 16 KiB. Does NOT check that its numbers belong together:
 * {@link isKeyOf} does.
 */
export function readPrivateKey(pem: string): KeyObject {
  if (pem.length > PEM_LIMIT) throw new Error(`the private key is longer than ${PEM_LIMIT} characters`)
  return createPrivateKey(pem)
}

/**
 * Tells whether a private key is the certificate's: it signs, and the certificate's public key verifies. EC
 * and RSA only. Comparing the public halves is not enough, for OpenSSL believes the one that a key's file
 * states beside its secret.
 */
export function isKeyOf(certificate: X509Certificate, key: KeyObject): boolean {
  if (!certificate.checkPrivateKey(key)) return false
  const challenge = randomBytes(32)
  try {
    return verify('sha256', challenge, certificate.publicKey, sign('sha256', challenge, key))
  } catch (error) {
    // A key whose numbers do not fit together cannot sign at all.
    if (error instanceof Error) return false
    throw error
  }
}
