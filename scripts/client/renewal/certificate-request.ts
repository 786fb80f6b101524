import { createPublicKey, type KeyObject, sign } from 'node:crypto'

// ASN.1 tags (X.690 §8), and the elements that every request of ours has.
const SEQUENCE = 0x30
const SET = 0x31
const VERSION_1 = Buffer.from('020100', 'hex')
const COMMON_NAME = Buffer.from('0603550403', 'hex')
/** The algorithms by which a key of each kind signs: AlgorithmIdentifiers (RFC 5758 §3.2, 4055 §5, 8410 §3). */
const SIGNED_WITH: Readonly<Record<string, Buffer>> = {
  ec: Buffer.from('06082a8648ce3d040302', 'hex'),
  rsa: Buffer.from('06092a864886f70d01010b0500', 'hex'),
  ed25519: Buffer.from('06032b6570', 'hex'),
}
const NO_ATTRIBUTES = Buffer.from('a000', 'hex')

/**
 * Makes a PKCS#10 certificate request (RFC 2986) for an EC, RSA or Ed25519 key, in PEM. It asks for no name: the
 * gateway knows the holder, and takes the key alone. Throws one sentence for another key.
 */
export function certificateRequest(key: KeyObject): string {
  const algorithm = SIGNED_WITH[key.asymmetricKeyType ?? '']
  if (!algorithm) throw new Error('the key is not EC, RSA or Ed25519')
  const digest = key.asymmetricKeyType === 'ed25519' ? null : 'sha256'
  const subject = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(0x0c, Buffer.from('renewal')))))
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' })
  const wanted = der(SEQUENCE, VERSION_1, subject, publicKey, NO_ATTRIBUTES)
  const signature = der(0x03, Buffer.from([0]), sign(digest, wanted, key))
  const request = der(SEQUENCE, wanted, der(SEQUENCE, algorithm), signature)
  const lines = request.toString('base64').match(/.{1,64}/g) ?? []
  return ['-----BEGIN CERTIFICATE REQUEST-----', ...lines, '-----END CERTIFICATE REQUEST-----', ''].join('\n')
}

/** One element: its tag, its length, its content of less than 64 KiB. */
function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const bytes = Buffer.concat(content)
  const { length } = bytes
  const short =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...short]), bytes])
}
