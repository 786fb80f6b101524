import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import t from 'tap'
import { isCheapToVerify } from '../../../certs/x509/key-cost.ts'
import { certificate, costlyKey } from '../../support/tls/costly-chain.ts'

const signer = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
const of = (key: KeyObject): Buffer => certificate(key, 'subject', signer, 'issuer')
const elliptic = (namedCurve: string, paramEncoding: 'named' | 'explicit' = 'named'): Buffer =>
  of(generateKeyPairSync('ec', { namedCurve, paramEncoding }).privateKey)
const rsa = (modulusLength: number, publicExponent = 65_537): Buffer =>
  of(generateKeyPairSync('rsa', { modulusLength, publicExponent }).privateKey)

await t.test('A1: keys that callers have are cheap', async (t) => {
  const cheap = {
    'P-256': elliptic('P-256'),
    'P-384': elliptic('P-384'),
    'P-521': elliptic('P-521'),
    'RSA-2048': rsa(2048),
    'RSA-4096': rsa(4096),
    'RSA-3072 with the exponent 3': rsa(3072, 3),
    'RSA-PSS': of(generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).privateKey),
    Ed25519: of(generateKeyPairSync('ed25519').privateKey),
    Ed448: of(generateKeyPairSync('ed448').privateKey),
  }
  for (const [name, der] of Object.entries(cheap)) t.ok(isCheapToVerify(der), name)
})

await t.test('A1: keys that were made to be dear, or are of a kind that nobody has, are not', async (t) => {
  const long = createPrivateKey({ key: costlyKey().export({ format: 'jwk' }), format: 'jwk' })
  const dear = {
    'an exponent as long as the modulus': of(long),
    'a curve that is spelled out': elliptic('P-256', 'explicit'),
    'a curve that nobody enrolls': elliptic('secp256k1'),
    DSA: of(generateKeyPairSync('dsa', { modulusLength: 2048, divisorLength: 256 }).privateKey),
    nothing: Buffer.alloc(0),
    'no certificate': Buffer.from('3003020101', 'hex'),
  }
  for (const [name, der] of Object.entries(dear)) t.notOk(isCheapToVerify(der), name)
})

await t.test('A1: only strict DER is read, since another reader might see another key', async (t) => {
  const der = elliptic('P-256')
  t.notOk(isCheapToVerify(Buffer.concat([der, Buffer.from([0])])), 'something behind it')
  t.notOk(isCheapToVerify(der.subarray(0, -1)), 'cut short')
  const indefinite = Buffer.concat([Buffer.from([0x30, 0x80]), der.subarray(4), Buffer.from([0, 0])])
  t.notOk(isCheapToVerify(indefinite), 'a length that is not given')
  const longer = Buffer.concat([Buffer.from([0x30, 0x83, 0]), der.subarray(2)])
  t.notOk(isCheapToVerify(longer), 'a length with a zero in front')
})

await t.test('A1: no bytes make it throw', async (t) => {
  const der = rsa(2048)
  let refused = 0
  for (let at = 0; at < der.length; at += 1) {
    const changed = Buffer.from(der)
    changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8))
    if (!isCheapToVerify(changed)) refused += 1
  }
  t.ok(refused > 20, `${refused} of ${der.length} were not read`)
})
