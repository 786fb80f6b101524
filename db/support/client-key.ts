import { createPrivateKey, X509Certificate } from 'node:crypto'

/** Why TLS could not use a client's certificate and key, PEM: one sentence that says what to do, or null. */
export function clientKeyFault(certificate: string | Buffer, key: string | Buffer): string | null {
  if (/ENCRYPTED/.test(key.toString())) {
    return 'its key is sealed with a passphrase: write it without one (openssl pkey -in KEY -out NEW) to a file that nobody else can read'
  }
  const leaf = certificateIn(certificate)
  if (leaf === null) return 'its certificate cannot be read: it must be PEM'
  const own = keyIn(key)
  if (own === null) return 'its key cannot be read: it must be a private key in PEM'
  if (leaf.checkPrivateKey(own)) return null
  return "its key is not the one of its certificate: the client's own certificate comes first, those of its CAs after it"
}

function certificateIn(pem: string | Buffer): X509Certificate | null {
  try {
    return new X509Certificate(pem)
  } catch {
    return null
  }
}

function keyIn(pem: string | Buffer) {
  try {
    return createPrivateKey(pem)
  } catch {
    return null
  }
}
