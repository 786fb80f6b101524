import {
  type CipherChaCha20Poly1305Types,
  type CipherGCMTypes,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
} from 'node:crypto'

/** Bytes before a record's content: type, version, length (RFC 8446 §5.1). */
export const RECORD_HEADER = 5
const IV_LENGTH = 12
const TAG_LENGTH = 16

export interface RecordContent {
  readonly type: number
  readonly bytes: Buffer
}

interface CipherSuite {
  readonly cipher: CipherGCMTypes | CipherChaCha20Poly1305Types
  readonly digest: 'sha256' | 'sha384'
  readonly keyLength: number
}

const SUITES: Readonly<Record<string, CipherSuite>> = {
  TLS_AES_128_GCM_SHA256: { cipher: 'aes-128-gcm', digest: 'sha256', keyLength: 16 },
  TLS_AES_256_GCM_SHA384: { cipher: 'aes-256-gcm', digest: 'sha384', keyLength: 32 },
  TLS_CHACHA20_POLY1305_SHA256: { cipher: 'chacha20-poly1305', digest: 'sha256', keyLength: 32 },
}

/** Reads the protected records of a TLS 1.3 handshake from its secret (RFC 8446 §5.2, §7.3). */
export class RecordReader {
  readonly #suite: CipherSuite
  readonly #key: KeyObject
  readonly #iv: Buffer
  #sequence = 0

  /** `suite`: its IANA name. Throws if it is none of TLS 1.3. */
  constructor(suite: string, secret: Buffer) {
    const known = SUITES[suite]
    if (!known) throw new Error(`${suite} is no cipher suite of TLS 1.3 that this service offers`)
    this.#suite = known
    // Node takes a Buffer for a key by an error that it throws and catches: a dozen microseconds each time.
    const from = createSecretKey(secret)
    this.#key = createSecretKey(expand(known, from, 'key', known.keyLength))
    this.#iv = expand(known, from, 'iv', IV_LENGTH)
  }

  /** Opens the next record, given with its header. Null if it is not one that the peer has protected. */
  open(record: Buffer): RecordContent | null {
    const end = record.length - TAG_LENGTH
    if (end <= RECORD_HEADER) return null
    // The three differ in nothing that is used here.
    const decipher = createDecipheriv(this.#suite.cipher as CipherGCMTypes, this.#key, this.#nonce(), {
      authTagLength: TAG_LENGTH,
    })
    this.#sequence += 1
    decipher.setAAD(record.subarray(0, RECORD_HEADER), { plaintextLength: end - RECORD_HEADER })
    decipher.setAuthTag(record.subarray(end))
    const inner = decipher.update(record.subarray(RECORD_HEADER, end))
    try {
      decipher.final()
    } catch {
      return null
    }
    return removePadding(inner)
  }

  #nonce(): Buffer {
    const nonce = Buffer.from(this.#iv)
    // A handshake has fewer than 2^32 records.
    nonce.writeUInt32BE((nonce.readUInt32BE(IV_LENGTH - 4) ^ this.#sequence) >>> 0, IV_LENGTH - 4)
    return nonce
  }
}

/** The type stands after the content, and zeros after the type (RFC 8446 §5.4). */
function removePadding(inner: Buffer): RecordContent | null {
  let end = inner.length
  while (end > 0 && inner[end - 1] === 0) end -= 1
  const type = inner[end - 1]
  return type === undefined ? null : { type, bytes: inner.subarray(0, end - 1) }
}

/** HKDF-Expand-Label without a context (RFC 8446 §7.1); one block. */
function expand({ digest }: CipherSuite, secret: KeyObject, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`)
  const info = Buffer.concat([Buffer.from([0, length, name.length]), name, Buffer.from([0, 1])])
  return createHmac(digest, secret).update(info).digest().subarray(0, length)
}

const SECRET = /^CLIENT_HANDSHAKE_TRAFFIC_SECRET [0-9a-f]+ ([0-9a-f]+)\n?$/

/** Finds the secret of the client's handshake in a line of Node's `keylog` (RFC 9850 §2), or null. */
export function clientSecretIn(line: Buffer): Buffer | null {
  const [, hex] = SECRET.exec(line.toString('latin1')) ?? []
  return hex === undefined ? null : Buffer.from(hex, 'hex')
}
