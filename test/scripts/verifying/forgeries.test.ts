import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { chainOf, decided, ended, exportOf } from '../../support/db/history.ts'
import { HISTORY } from '../../support/db/ledger-with-tables.ts'
import { checkpointOver, ORIGIN, receiptOver, signer } from '../../support/sealed-log.ts'
import { allVerifiers, PYTHON, withoutPython } from '../../support/verifiers.ts'

const verify = allVerifiers(t)

const BODY = '{"model":"gpt-5","messages":[]}'
const SALT = '5a'.repeat(16)
const call = decided(1, {
  authority: { revision: 2 },
  more: { body_sha256: hash('sha256', Buffer.concat([Buffer.from(SALT, 'hex'), Buffer.from(BODY)])) },
})
const rows = chainOf([...HISTORY.slice(0, -4), call, ended(call)])
const leaves = rows.map(({ leaf }) => leaf)
const length = rows.length
/** The same history, but for one row, with every hash made anew: what the owner of the database can do. */
const rewritten = chainOf([...HISTORY.slice(0, -4), { ...call, model: 'gpt-4' }, ended(call)])

const [log, thief] = [signer(), signer()]
const witness = signer('witness.example', 'witness')
const SEEN = 1_790_000_000
const honest = checkpointOver(leaves, log, { witness, at: SEEN })
const earlier = checkpointOver(leaves.slice(0, 5), log)

const directory = t.testdir()
let count = 0
const file = (text: string): string => {
  count += 1
  const path = join(directory, `file-${count}`)
  writeFileSync(path, text)
  return path
}
const exported = file(exportOf(rows))

const swapLine = (note: string, from: RegExp, to: string): string => note.replace(from, to)

await t.test('an export is held against what was kept elsewhere, by both verifiers alike', async (t) => {
  const moved = (note: string): string => {
    const line = note.trimEnd().split('\n').at(-1) ?? ''
    const bytes = Buffer.from(line.split(' ')[2] ?? '', 'base64')
    bytes.writeUInt8(bytes.readUInt8(11) ^ 1, 11)
    return note.replace(line, `— witness.example ${bytes.toString('base64')}`)
  }
  const key = ['--key', log.vkey]
  const kept = (note: string) => ['--checkpoint', file(note)]
  const cut = file(exportOf(rows.slice(0, -2)))
  const cases: readonly (readonly [string, readonly string[], number, RegExp])[] = [
    ['nothing from elsewhere', [exported], 0, /^CONSISTENT, NOT WITNESSED$/],
    ['a key and the checkpoint', [exported, ...key, ...kept(honest)], 0, /^VERIFIED$/],
    ['the checkpoint alone', [exported, ...kept(honest)], 0, /^VERIFIED$/],
    ['an earlier checkpoint', [exported, ...kept(earlier)], 0, /^VERIFIED$/],
    ['the file of an anchor', [exported, ...key, ...kept(`${earlier}\n${honest}`)], 0, /^VERIFIED$/],
    [
      'a witness',
      [exported, ...key, ...kept(honest), '--witness', witness.vkey],
      0,
      /^VERIFIED, WITNESSED by witness\.example at 2026-09-21T/,
    ],
    ['a witness that has not signed', [exported, ...kept(earlier), '--witness', witness.vkey], 3, /./],
    ['a cosignature of another time', [exported, ...kept(moved(honest)), '--witness', witness.vkey], 3, /./],
    [
      'a checkpoint of no rows',
      [exported, ...kept(checkpointOver([], log)), ...kept(honest)],
      0,
      /^VERIFIED$/,
    ],
    ['another key', [exported, '--key', thief.vkey, ...kept(honest)], 3, /./],
    ['signed by another key', [exported, ...key, ...kept(checkpointOver(leaves, thief))], 3, /./],
    ['a key and nothing that it has signed', [exported, ...key], 3, /./],
    ['another root', [exported, ...kept(checkpointOver(leaves.with(3, '{}'), log))], 3, /./],
    ['another size', [exported, ...key, ...kept(swapLine(honest, /^\d+$/m, String(length - 1)))], 3, /./],
    [
      'another origin',
      [exported, ...key, ...kept(checkpointOver(leaves, { ...log, name: 'example.org/x/audit' }))],
      3,
      /./,
    ],
    ['rows cut off', [cut, ...key, ...kept(honest)], 4, /./],
    ['rows cut off, seen by nobody', [cut], 0, /^CONSISTENT, NOT WITNESSED$/],
    ['written anew', [file(exportOf(rewritten)), ...key, ...kept(honest)], 3, /./],
    ['written anew, seen by nobody', [file(exportOf(rewritten))], 0, /^CONSISTENT, NOT WITNESSED$/],
    ['a row changed', [file(exportOf(rows).replace('gpt-5', 'gpt-4')), ...kept(honest)], 2, /./],
    ['a row gone', [file(exportOf(rows.toSpliced(4, 1))), ...kept(honest)], 2, /./],
    [
      'rows swapped',
      [
        file(exportOf(rows.with(4, rows[5] ?? (rows[0] as never)).with(5, rows[4] as never))),
        ...kept(honest),
      ],
      2,
      /./,
    ],
    ['no checkpoint in the file', [exported, ...kept('hello\n')], 9, /./],
    ['no key', [exported, '--key', `${log.vkey}x`], 9, /./],
    [
      'a key of a name that its id does not fit',
      [exported, '--key', log.vkey.replace(ORIGIN, 'other')],
      9,
      /./,
    ],
  ]
  for (const [name, args, code, last] of cases) {
    const said = await verify(...args)
    t.equal(said.code, code, name)
    if (code === 0) t.match(said.last, last, name)
  }
})

await t.test('a receipt shows that exactly this body was judged then, and no other', async (t) => {
  const about = [length - 2, length - 1]
  const honestReceipt = await receiptOver(leaves, about, honest, { body_sha256: SALT })
  const text = JSON.stringify(honestReceipt)
  const key = ['--key', log.vkey]
  const body = ['--body', file(BODY)]
  const early = await receiptOver(leaves, [3], honest, {})
  const foreign = await receiptOver(leaves, about, checkpointOver(leaves, thief), { body_sha256: SALT })
  const cases: readonly (readonly [string, string, readonly string[], number, RegExp])[] = [
    ['honest', text, [...key, ...body], 0, /^VERIFIED$/],
    ['without a key', text, body, 0, /^CONSISTENT, NOT WITNESSED$/],
    ['with the checkpoint that was kept', text, ['--checkpoint', file(honest)], 0, /^VERIFIED$/],
    ['witnessed', text, [...key, '--witness', witness.vkey], 0, /^VERIFIED, WITNESSED by witness\.example/],
    ['another body', text, [...key, '--body', file(`${BODY} `)], 2, /./],
    ['another salt', text.replace(SALT, '5b'.repeat(16)), [...key, ...body], 2, /./],
    ['a leaf that was changed', text.replace('gpt-5', 'gpt-4'), key, 3, /./],
    ['a place that was changed', text.replace(`"seq":${length}`, '"seq":1'), key, 2, /./],
    ['another key', text, ['--key', thief.vkey], 3, /./],
    ['signed by another key', JSON.stringify(foreign), key, 3, /./],
    [
      'rows of two requests',
      JSON.stringify({ ...honestReceipt, rows: [honestReceipt.rows[0], early.rows[0]] }),
      key,
      2,
      /./,
    ],
    [
      'the outcome before its decision',
      JSON.stringify({ ...honestReceipt, rows: honestReceipt.rows.toReversed() }),
      key,
      2,
      /comes first/,
    ],
    ['a witness alone', text, ['--witness', witness.vkey], 0, /^CONSISTENT, NOT WITNESSED$/],
    ['another index', text.replace(`index ${length - 1}`, 'index 3'), key, 3, /./],
    ['a proof that is none', text.replace('c2sp.org/tlog-proof@v1', 'c2sp.org/tlog-proof@v9'), key, 3, /./],
    ['no rows', '{"rows":[]}', key, 9, /./],
  ]
  for (const [name, receipt, args, code, last] of cases) {
    const said = await verify(file(receipt), ...args)
    t.equal(said.code, code, `${name}: ${said.last}`)
    if (code === 0) t.match(said.last, last, name)
  }
})

await t.test(
  'the verifier that is written from the documents takes nothing but Python',
  { skip: withoutPython },
  (t) => {
    const imports = readFileSync(PYTHON, 'utf8').match(/^(?:import|from) \w+/gm) ?? []
    const { stdout } = spawnSync('python3', ['-c', 'import sys; print(*sys.stdlib_module_names)'])
    const own = new Set(String(stdout).trim().split(' '))
    t.ok(imports.length > 5)
    t.same(
      imports.filter((line) => !own.has(line.split(' ')[1] ?? '')),
      [],
    )
    t.end()
  },
)
