import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseSigned } from '../../../db/audit/tree/trusted.ts'
import { DAY_MS } from '../../support/certs/made.ts'
import { without } from '../../support/certs/openssl.ts'
import { chainOf, exportOf } from '../../support/db/history.ts'
import { HISTORY } from '../../support/db/ledger-with-tables.ts'
import { checkpointOver, receiptOver, signer } from '../../support/sealed-log.ts'
import { flipped, stampRoot, testTsa } from '../../support/tsa.ts'
import { allVerifiers } from '../../support/verifiers.ts'

t.setTimeout(120_000)
const skip = without('openssl')
const verify = allVerifiers(t)

const rows = chainOf(HISTORY)
const leaves = rows.map(({ leaf }) => leaf)
const log = signer()
const witness = signer('witness.example', 'witness')
const note = checkpointOver(leaves, log, { witness, at: 1_790_000_000 })
const { text } = parseSigned(note).note
const directory = t.testdir()
let count = 0
const file = (bytes: string | Buffer): string => {
  count += 1
  const path = join(directory, `file-${count}`)
  writeFileSync(path, bytes)
  return path
}
const exported = file(exportOf(rows))
const kept = ['--key', log.vkey, '--checkpoint', file(note)]

await t.test('a time stamp that is handed over is judged alike by all verifiers', { skip }, async (t) => {
  const tsa = await testTsa(t)
  const honest = tsa.over(text)
  const other = await testTsa(t, { root: await stampRoot('Another Root') })
  const namesake = await testTsa(t)
  const gone = { root: tsa.root, notBefore: 0, notAfter: Date.now() - DAY_MS }
  const by = (ca: string): readonly string[] => ['--tsa', ca]
  const cases: readonly (readonly [string, Buffer, readonly string[], 0 | 3, RegExp])[] = [
    ['honest', honest, by(tsa.ca), 0, /^VERIFIED, STAMPED by Test TSA at \S+Z$/],
    ['nobody trusted', honest, [], 0, /^VERIFIED$/],
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
    [
      'another time',
      flipped(honest, ({ content }) => content.subarray(-40)),
      by(tsa.ca),
      3,
      /not what was signed/,
    ],
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
      ['--tsa', join(directory, 'missing')],
      ['--timestamp', join(directory, 'missing')],
    ])
      t.equal((await verify(exported, ...kept, ...given)).code, 9, given.join(' '))
  },
)
