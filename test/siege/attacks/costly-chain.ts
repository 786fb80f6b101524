import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import {
  Set as Asn1Set,
  BitString,
  Constructed,
  fromBER,
  Integer,
  Null,
  ObjectIdentifier,
  Sequence,
  UTCTime,
  Utf8String,
} from 'asn1js'

/** The longest modulus for which OpenSSL takes an exponent of any length. Bits. */
const MODULUS_BITS = 3072
/** As many of our certificates as OpenSSL takes of one client: 100 KiB. */
const CERTIFICATES = 61

const [SHA256_RSA, COMMON_NAME] = ['1.2.840.113549.1.1.11', '2.5.4.3']

/** A client's certificates and the key of the first. PEM. */
export interface CostlyChain {
  readonly cert: string
  readonly key: string
}

/**
 * Makes a chain that costs nothing to make and much to verify: every certificate has the same RSA key, whose public exponent
 * is as long as its modulus, because the two exponents of an ordinary key have changed places.
 */
export function costlyChain(): CostlyChain {
  const key = swapped()
  const spki = createPublicKey(key).export({ type: 'spki', format: 'der' })
  const pems = Array.from({ length: CERTIFICATES }, (_, index) => certificate(key, spki, index))
  return { cert: pems.join(''), key: key.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

function swapped(): KeyObject {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: MODULUS_BITS })
  const jwk = privateKey.export({ format: 'jwk' })
  // e·d = 1 holds either way round. The exponent is so short that it is the same modulo p-1 and q-1.
  const { e = '', d = '' } = jwk
  return createPrivateKey({ key: { ...jwk, e: d, d: e, dp: e, dq: e }, format: 'jwk' })
}

function certificate(key: KeyObject, spki: Buffer, index: number): string {
  const algorithm = new Sequence({ value: [new ObjectIdentifier({ value: SHA256_RSA }), new Null()] })
  const tbs = new Sequence({
    value: [
      new Constructed({ idBlock: { tagClass: 3, tagNumber: 0 }, value: [new Integer({ value: 2 })] }),
      new Integer({ value: index + 1 }),
      algorithm,
      name(index + 1),
      new Sequence({ value: [Date.UTC(2020, 0), Date.UTC(2049, 0)].map(time) }),
      name(index),
      fromBER(Uint8Array.from(spki)).result,
    ],
  })
  const signature = sign('sha256', Buffer.from(tbs.toBER()), key)
  const whole = new Sequence({
    value: [tbs, algorithm, new BitString({ valueHex: Uint8Array.from(signature) })],
  })
  const text = Buffer.from(whole.toBER()).toString('base64')
  return `-----BEGIN CERTIFICATE-----\n${text.replace(/.{64}/g, '$&\n').trim()}\n-----END CERTIFICATE-----\n`
}

const time = (at: number): UTCTime => new UTCTime({ valueDate: new Date(at) })

function name(index: number): Sequence {
  const type = new ObjectIdentifier({ value: COMMON_NAME })
  const attribute = new Sequence({ value: [type, new Utf8String({ value: `c${index}` })] })
  return new Sequence({ value: [new Asn1Set({ value: [attribute] })] })
}
