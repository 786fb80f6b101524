import {
  createCipheriv,
  createHmac,
  createPrivateKey,
  hash,
  pbkdf2Sync,
  randomBytes,
  X509Certificate,
} from 'node:crypto'
import {
  type BaseBlock,
  BmpString,
  Constructed,
  Integer,
  Null,
  ObjectIdentifier,
  OctetString,
  Primitive,
  Sequence,
  Set as SetOf,
} from 'asn1js'

// As OpenSSL 3 writes them: today's browsers, Keychain and Windows read these, and no RC2, 3DES or SHA-1 is in
// them. Keychain refuses a right password if the salt of the MAC is longer.
const SALT_BYTES = 8
/** The password is 100 random bits: nobody guesses one of it. */
const ITERATIONS = 2048
const HASH = 'sha256'
/** The block of SHA-256. Bytes. */
const BLOCK = 64

export interface Pkcs12Contents {
  /** The certificate of the key, then those above it. PEM. */
  readonly chainPem: string
  readonly privateKeyPem: string
  /** The name that the importing program shows. */
  readonly name: string
  readonly password: string
}

/** Makes the file in which browsers and systems take a key with its certificates (RFC 7292). DER. */
export function pkcs12({ chainPem, privateKeyPem, name, password }: Pkcs12Contents): Buffer {
  const chain = chainPem.match(/-----BEGIN[^-]+-----[^-]+-----END[^-]+-----/g) ?? []
  const ders = chain.map((pem) => new X509Certificate(pem).raw)
  const [leaf = Buffer.alloc(0)] = ders
  const attributes = new SetOf({
    value: [
      sequence(oid('1.2.840.113549.1.9.20'), new SetOf({ value: [new BmpString({ value: name })] })),
      sequence(oid('1.2.840.113549.1.9.21'), new SetOf({ value: [octets(hash('sha1', leaf, 'buffer'))] })),
    ],
  })
  const key = createPrivateKey(privateKeyPem).export({ type: 'pkcs8', format: 'der' })
  const shrouded = encrypted(password, key)
  const keyBag = sequence(
    oid('1.2.840.113549.1.12.10.1.2'),
    tagged(sequence(shrouded.algorithm, octets(shrouded.bytes))),
    attributes,
  )
  const certificateBags = ders.map((der, index) =>
    sequence(
      oid('1.2.840.113549.1.12.10.1.3'),
      tagged(sequence(oid('1.2.840.113549.1.9.22.1'), tagged(octets(der)))),
      ...(index === 0 ? [attributes] : []),
    ),
  )
  const certificates = encrypted(password, derOf(sequence(...certificateBags)))
  const encryptedData = sequence(
    new Integer({ value: 0 }),
    sequence(
      oid(DATA),
      certificates.algorithm,
      new Primitive({ idBlock: CONTEXT_0, valueHex: toArrayBuffer(certificates.bytes) }),
    ),
  )
  const safe = derOf(
    sequence(sequence(oid('1.2.840.113549.1.7.6'), tagged(encryptedData)), dataOf(derOf(sequence(keyBag)))),
  )
  return derOf(sequence(new Integer({ value: 3 }), dataOf(safe), macOf(password, safe)))
}

const DATA = '1.2.840.113549.1.7.1'
const CONTEXT_0 = { tagClass: 3, tagNumber: 0 } as const

const sequence = (...value: BaseBlock[]): Sequence => new Sequence({ value })
const oid = (value: string): ObjectIdentifier => new ObjectIdentifier({ value })
const toArrayBuffer = (bytes: Uint8Array): ArrayBuffer => Uint8Array.from(bytes).buffer
const octets = (bytes: Uint8Array): OctetString => new OctetString({ valueHex: toArrayBuffer(bytes) })
const tagged = (value: BaseBlock): Constructed => new Constructed({ idBlock: CONTEXT_0, value: [value] })
const derOf = (block: BaseBlock): Buffer => Buffer.from(block.toBER())
const dataOf = (bytes: Buffer): Sequence => sequence(oid(DATA), tagged(octets(bytes)))

/** Encrypts by PBES2 (RFC 8018 §6.2): PBKDF2 with HMAC-SHA-256, AES-256-CBC. */
function encrypted(password: string, bytes: Buffer) {
  const [salt, iv] = [randomBytes(SALT_BYTES), randomBytes(16)]
  const cipher = createCipheriv('aes-256-cbc', pbkdf2Sync(password, salt, ITERATIONS, 32, HASH), iv)
  const prf = sequence(oid('1.2.840.113549.2.9'), new Null())
  const derivation = sequence(octets(salt), new Integer({ value: ITERATIONS }), prf)
  const algorithm = sequence(
    oid('1.2.840.113549.1.5.13'),
    sequence(
      sequence(oid('1.2.840.113549.1.5.12'), derivation),
      sequence(oid('2.16.840.1.101.3.4.1.42'), octets(iv)),
    ),
  )
  return { algorithm, bytes: Buffer.concat([cipher.update(bytes), cipher.final()]) }
}

/** Makes the MacData: HMAC-SHA-256 by a key of one block (RFC 7292 appendix B.2, ID 3). */
function macOf(password: string, safe: Buffer): Sequence {
  const salt = randomBytes(SALT_BYTES)
  const text = Buffer.from(`${password}\0`, 'utf16le').swap16()
  const filled = (bytes: Buffer) => Buffer.alloc(Math.ceil(bytes.length / BLOCK) * BLOCK, bytes)
  let key = Buffer.concat([Buffer.alloc(BLOCK, 3), filled(salt), filled(text)])
  for (let round = 0; round < ITERATIONS; round += 1) key = hash(HASH, key, 'buffer')
  const mac = createHmac(HASH, key).update(safe).digest()
  const digest = sequence(sequence(oid('2.16.840.1.101.3.4.2.1'), new Null()), octets(mac))
  return sequence(digest, octets(salt), new Integer({ value: ITERATIONS }))
}
