import { spawnSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Extension } from 'pkijs'
import t from 'tap'
import { extendedKeyUsage } from '../../../certs/authority/builder.ts'
import { stampAuthority, stampVerifier } from '../../../certs/timestamps/judge.ts'
import { StampError } from '../../../certs/timestamps/stamp.ts'
import { OID } from '../../../certs/x509/x509.ts'
import { parseSignedCheckpoint } from '../../../db/ledger/tree/trusted.ts'
import { caExtensions, DAY_MS, odd } from '../../support/certs/made.ts'
import { without } from '../../support/certs/openssl.ts'
import { chainOf, exportOf } from '../../support/db/history.ts'
import { HISTORY } from '../../support/db/ledger-with-tables.ts'
import { checkpointOver, receiptOver, signer } from '../../support/sealed-log.ts'
import { flipped, misdated, stampRoot, testTsa } from '../../support/tsa.ts'
import { allVerifiers, PYTHON, withoutPython } from '../../support/verifiers.ts'

t.setTimeout(120_000)
const skip = without('openssl')
const verify = allVerifiers(t)

const rows = chainOf(HISTORY)
const leaves = rows.map(({ leaf }) => leaf)
const log = signer()
const witness = signer('witness.example', 'witness')
const note = checkpointOver(leaves, log, { witness, at: 1_790_000_000 })
const { text } = parseSignedCheckpoint(note).note
const directory = t.testdir()
let count = 0
const file = (bytes: string | Buffer): string => {
  count += 1
  const path = join(directory, `file-${count}`)
  writeFileSync(path, bytes)
  return path
}
const DAMAGED = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const exported = file(exportOf(rows))
const kept = ['--key', log.vkey, '--checkpoint', file(note)]

await t.test('a time stamp that is handed over is judged alike by all verifiers', { skip }, async (t) => {
  const tsa = await testTsa(t)
  const honest = tsa.over(text)
  const other = await testTsa(t, { root: await stampRoot('Another Root') })
  const namesake = await testTsa(t)
  const gone = { root: tsa.root, notBefore: 0, notAfter: Date.now() - DAY_MS }
  const by = (ca: string): readonly string[] => ['--tsa', ca]
  const today = { notBefore: Date.now() - DAY_MS, notAfter: Date.now() + DAY_MS }
  const below = async (...extensions: readonly Extension[]): Promise<Buffer> => {
    const middle = { name: 'middle', ...today, extensions: [...caExtensions(0), ...extensions] }
    return (await testTsa(t, { root: tsa.root, issuer: await odd(middle, tsa.root) })).over(text)
  }
  const cases: readonly (readonly [string, Buffer, readonly string[], 0 | 3, RegExp])[] = [
    ['honest', honest, by(tsa.ca), 0, /^VERIFIED, STAMPED by Test TSA at \S+Z$/],
    [
      'a bundle with a leaf, a comment and a damaged block',
      honest,
      by(file(`# ours\n${tsa.own.pem}${DAMAGED}${tsa.root.pem}`)),
      0,
      /^VERIFIED, STAMPED by Test TSA at \S+Z$/,
    ],
    [
      'log keys with a comment, a blank, a witness and a line that is none',
      honest,
      ['--key', file(`# ours\n\nnonsense\n${witness.vkey}\n${log.vkey}\n`)],
      0,
      /^VERIFIED, KEPT outside/,
    ],
    ['nobody trusted', honest, [], 0, /^VERIFIED, KEPT outside/],
    ['over an intermediate', await below(), by(tsa.ca), 0, /^VERIFIED, STAMPED by Test TSA at/],
    [
      'over one for something else',
      await below(extendedKeyUsage(OID.clientAuth)),
      by(tsa.ca),
      3,
      /is not by the CA that it names/,
    ],
    [
      'witnessed too',
      honest,
      [...by(tsa.ca), '--witness', witness.vkey],
      0,
      /^VERIFIED, WITNESSED by witness\.example at \S+, STAMPED by Test TSA at \S+$/,
    ],
    ['of another text', tsa.over('another text'), [], 3, /is of no checkpoint that is here/],
    ['no time stamp', Buffer.from('hello'), by(tsa.ca), 3, /cannot be read/],
    ['another CA', honest, by(other.ca), 3, /no checkpoint is stamped by an authority of/],
    ['another CA too', honest, [...by(tsa.ca), ...by(other.ca)], 3, /no checkpoint is stamped by/],
    ['a CA of the same name', honest, by(namesake.ca), 3, /is not by the CA that it names/],
    ['expired', (await testTsa(t, gone)).forced(text), by(tsa.ca), 3, /was not valid then/],
    [
      'not for time stamps',
      (await testTsa(t, { root: tsa.root, extensions: [] })).forced(text),
      by(tsa.ca),
      3,
      /not for time stamps alone/,
    ],
    ['bound to nobody', tsa.forced(text, false), by(tsa.ca), 3, /does not bind/],
    ['another time', misdated(honest), by(tsa.ca), 3, /not what was signed/],
    [
      'another signature',
      flipped(honest, (stamp) => stamp.signer.signature),
      by(tsa.ca),
      3,
      /has a signature/,
    ],
    [
      'another attribute',
      flipped(honest, (stamp) => stamp.signer.signed.subarray(1)),
      by(tsa.ca),
      3,
      /the time stamp/,
    ],
    [
      'another certificate',
      flipped(honest, (stamp) => stamp.certificates[0] ?? honest),
      by(tsa.ca),
      3,
      /the time stamp/,
    ],
  ]
  for (const [name, stamp, args, code, said] of cases) {
    const found = await verify(exported, ...kept, '--timestamp', file(stamp), ...args)
    t.equal(found.code, code, `${name}: ${found.out}${found.err}`)
    t.match(code === 0 ? found.last : found.out, said, name)
    if (/time stamp of the checkpoint/.test(found.out))
      t.match(found.out, `checkpoint of ${rows.length} rows`)
  }
  const alone = await verify(exported, ...kept, ...by(tsa.ca))
  t.match(alone, { code: 3, out: /no checkpoint is stamped by an authority of/ }, 'a --tsa and no time stamp')
})

await t.test('a receipt takes a time stamp of its own checkpoint', { skip }, async (t) => {
  const tsa = await testTsa(t)
  const receipt = file(JSON.stringify(await receiptOver(leaves, [rows.length - 1], note, {})))
  const given = ['--key', log.vkey, '--timestamp', file(tsa.over(text))]
  t.match(await verify(receipt, ...given, '--tsa', tsa.ca), {
    code: 0,
    last: /^VERIFIED, STAMPED by Test TSA at/,
  })
  t.match(await verify(receipt, ...given), { code: 0, last: 'VERIFIED' })
  const forged = file(flipped(tsa.over(text), (stamp) => stamp.signer.signature))
  const args = ['--key', log.vkey, '--timestamp', forged, '--tsa', tsa.ca]
  t.match(await verify(receipt, ...args), { code: 3, out: /has a signature that is not by its certificate/ })
})

await t.test(
  'what was given as an authority or a time stamp and is none is exit code 9',
  { skip },
  async (t) => {
    const tsa = await testTsa(t)
    for (const given of [
      ['--tsa', file('')],
      ['--tsa', file(tsa.own.pem)],
      ['--key', file(`# ours\n${witness.vkey}\n`)],
      ['--witness', file(`${witness.vkey}\nnonsense\n`)],
      ['--witness', file(`${witness.vkey}\n${log.vkey}\n`)],
      ['--tsa', join(directory, 'missing')],
      ['--timestamp', join(directory, 'missing')],
    ])
      t.equal((await verify(exported, ...kept, ...given)).code, 9, given.join(' '))
  },
)

/** Judges stamps with every third byte changed in turn: the places where one is still by the CA. Python. */
const SWEEP = `
import sys
sys.path.insert(0, sys.argv[1])
import verify
stamp, text = open(sys.argv[2], "rb").read(), open(sys.argv[3], "rb").read().decode()
authority = verify.Authority(sys.argv[4])
class Note: pass
note = Note()
note.text, note.size = text, 1
for at in range(0, len(stamp), 3):
    changed = bytearray(stamp)
    changed[at] ^= 1
    watch = verify.Watch([authority], [])
    if not watch.see(note, [bytes(changed)]) and watch.stamped:
        print(at)
`

await t.test(
  'with any byte of it changed, a time stamp is by its CA to both verifiers, or to none',
  { skip: skip || withoutPython },
  async (t) => {
    const tsa = await testTsa(t, { key: generateKeyPairSync('rsa', { modulusLength: 2048 }) })
    const stamp = tsa.over(text)
    const args = [dirname(PYTHON), file(stamp), file(text), tsa.ca]
    const { status, stdout, stderr } = spawnSync('python3', ['-c', SWEEP, ...args], { encoding: 'utf8' })
    t.equal(status, 0, stderr)
    const judge = stampVerifier([stampAuthority('ca.pem', tsa.root.pem)])
    const held: number[] = []
    for (let at = 0; at < stamp.length; at += 3) {
      const bytes = Buffer.from(stamp)
      bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at)
      const found = await judge(bytes, text).catch((error: unknown) => {
        if (error instanceof StampError) return null
        throw error
      })
      if (found) held.push(at)
    }
    t.same(stdout.trim().split('\n').map(Number), held)
    // What nobody has signed: the version, a digest that is named twice, certificates that are not needed.
    t.ok(held.length > 0 && held.length < stamp.length / 3 / 2)
  },
)
