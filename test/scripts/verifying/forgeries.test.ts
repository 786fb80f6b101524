import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { exportLine } from '../../../db/ledger/record/leaf.ts'
import { chainOf, decided, ended, exportOf } from '../../support/db/history.ts'
import { HISTORY } from '../../support/db/ledger-with-tables.ts'
import { LIMITS, MeteredHistory, RED } from '../../support/db/metered-history.ts'
import { canonical, resealed, exportOf as resealedExport } from '../../support/db/resealed.ts'
import type { Json } from '../../support/gateway.ts'
import { checkpointOver, ORIGIN, receiptOver, signer } from '../../support/sealed-log.ts'
import { allVerifiers, PYTHON, withoutPython } from '../../support/verifiers.ts'

const verify = allVerifiers(t)

const BODY = '{"model":"gpt-5","messages":[]}'
const SALT = '5a'.repeat(16)
const ARGUMENTS =
  '{"whole":1.0,"large":12345678901234567890,"far":1e21,"near":1e-7,"least":5e-324,"tenth":0.1,"none":-0.0,"é":[100,1e2,123.5e3]}'
const committed = (text: string): string =>
  hash('sha256', Buffer.concat([Buffer.from(SALT, 'hex'), Buffer.from(text)]))
const call = decided(1, {
  authority: { revision: 2 },
  more: { arguments_sha256: committed(canonical(JSON.parse(ARGUMENTS))), body_sha256: committed(BODY) },
})
const rows = chainOf([...HISTORY.slice(0, -4), call, ended(call)])
const leaves = rows.map(({ leaf }) => leaf)
const length = rows.length
/** The same rows, the last of them otherwise, and its hash made anew. */
const owned = (change: object): string => {
  const said: readonly Json[] = rows.map((row) => JSON.parse(exportLine(row)))
  return resealedExport(
    resealed(said.map((row, index) => (index === length - 1 ? { ...row, ...change } : row))),
  )
}
/** The same history, but for one row, with every hash made anew: what the owner of the database can do. */
const rewritten = chainOf([...HISTORY.slice(0, -4), { ...call, model: 'gpt-4' }, ended(call)])

const [log, next, thief] = [signer(), signer(), signer()]
const witness = signer('witness.example', 'witness')
const SEEN = 1_790_000_000
const honest = checkpointOver(leaves, log, { witness, at: SEEN })
const earlier = checkpointOver(leaves.slice(0, 5), log)

const directory = t.testdir()
let count = 0
const file = (text: string | Buffer): string => {
  count += 1
  const path = join(directory, `file-${count}`)
  writeFileSync(path, text)
  return path
}
const exported = file(exportOf(rows))

const swapLine = (note: string, from: RegExp, to: string): string => note.replace(from, to)

const KEPT = /^VERIFIED, KEPT outside as a checkpoint of \d+ rows$/

await t.test('an export is held against what was kept elsewhere, by both verifiers alike', async (t) => {
  const moved = (note: string): string => {
    const line = note.trimEnd().split('\n').at(-1) ?? ''
    const bytes = Buffer.from(line.split(' ')[2] ?? '', 'base64')
    bytes.writeUInt8(bytes.readUInt8(11) ^ 1, 11)
    return note.replace(line, `— witness.example ${bytes.toString('base64')}`)
  }
  const key = ['--key', log.vkey]
  const kept = (note: string | Buffer) => ['--checkpoint', file(note)]
  const torn = Buffer.from(earlier).subarray(0, Buffer.from(earlier).indexOf('—') + 1)
  const longer = checkpointOver([...leaves, '{}'], log, { witness, at: SEEN })
  const deep = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`
  const cut = file(exportOf(rows.slice(0, -2)))
  const cases: readonly (readonly [string, readonly string[], number, RegExp])[] = [
    ['nothing from elsewhere', [exported], 0, /^CONSISTENT, NOT WITNESSED$/],
    ['a key and the checkpoint', [exported, ...key, ...kept(honest)], 0, KEPT],
    ['the checkpoint alone', [exported, ...kept(honest)], 0, KEPT],
    ['an earlier checkpoint', [exported, ...kept(earlier)], 0, KEPT],
    ['the file of an anchor', [exported, ...key, ...kept(`${earlier}\n${honest}`)], 0, KEPT],
    [
      'a witness',
      [exported, ...key, ...kept(honest), '--witness', witness.vkey],
      0,
      /^VERIFIED, WITNESSED by witness\.example at 2026-09-21T/,
    ],
    ['a witness that has not signed', [exported, ...kept(earlier), '--witness', witness.vkey], 3, /./],
    ['a cosignature of another time', [exported, ...kept(moved(honest)), '--witness', witness.vkey], 3, /./],
    ['a checkpoint of no rows', [exported, ...kept(checkpointOver([], log)), ...kept(honest)], 0, KEPT],
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
    [
      'the newest key, and a checkpoint from before a rotation',
      [exported, '--key', next.vkey, ...kept(`${earlier}\n${checkpointOver(leaves, next)}`)],
      0,
      KEPT,
    ],
    [
      'a note that a crash has torn inside a letter',
      [exported, ...key, ...kept(Buffer.concat([torn, Buffer.from(`\n\n${honest}`)]))],
      0,
      KEPT,
    ],
    [
      'rows cut off, and only the checkpoint of all is cosigned',
      [cut, ...key, ...kept(longer), '--witness', witness.vkey],
      4,
      /./,
    ],
    [
      'more rows than there are, signed by another key',
      [exported, ...key, ...kept(`${honest}\n${checkpointOver([...leaves, '{}'], thief)}`)],
      3,
      /./,
    ],
    [
      'the same behind one that the log has signed',
      [exported, ...key, ...kept(`${longer}\n${checkpointOver([...leaves, '{}', '{}'], thief)}`)],
      3,
      /./,
    ],
    ['a size beyond 2^53', [exported, ...kept(swapLine(honest, /^\d+$/m, '9007199254740993'))], 9, /./],
    ['a thousand signatures', [exported, ...kept(honest + '— nobody AAAAAAAA\n'.repeat(1_000))], 9, /./],
    ['a file without a key', [exported, '--key', file('\n'), ...kept(honest)], 9, /./],
    ['the key of a witness as that of the log', [exported, '--key', witness.vkey, ...kept(honest)], 9, /./],
    ['a time of another form', [file(owned({ recorded_at: 'now' }))], 2, /./],
    ['a detail of 17 levels', [file(owned({ detail: { a: JSON.parse(deep(17)) } }))], 2, /./],
    ['a detail of 16 levels', [file(owned({ detail: { a: JSON.parse(deep(16)) } }))], 0, /./],
    [
      'a first line that is nested a thousand times',
      [file(exportOf(rows).replace('{"node":"24"}', `{"node":${deep(1_000)}}`))],
      2,
      /./,
    ],
    ['a line of 2 MiB', [file(`${exportOf(rows)}${' '.repeat(1 << 21)}\n`)], 2, /./],
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
    if (name === 'an earlier checkpoint')
      t.match(said.out, /^the last \d+ rows?: SEEN by nobody outside$/m, 'what came after it')
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
    ['honest', text, [...key, ...body], 0, /^VERIFIED, SEEN by nobody outside$/],
    ['without a key', text, body, 0, /^CONSISTENT, NOT WITNESSED$/],
    ['with the checkpoint that was kept', text, ['--checkpoint', file(honest)], 0, KEPT],
    ['witnessed', text, [...key, '--witness', witness.vkey], 0, /^VERIFIED, WITNESSED by witness\.example/],
    ['another body', text, [...key, '--body', file(`${BODY} `)], 2, /./],
    [
      'the end of the body, and a salt that goes on into it',
      text.replace(SALT, `${SALT}${Buffer.from(BODY.slice(0, 9)).toString('hex')}`),
      [...key, '--body', file(BODY.slice(9))],
      2,
      /./,
    ],
    [
      'the salt in front of the body, and none beside it',
      text.replace(SALT, ''),
      [...key, '--body', file(Buffer.concat([Buffer.from(SALT, 'hex'), Buffer.from(BODY)]))],
      2,
      /./,
    ],
    [
      'arguments with numbers of every kind',
      text.replace('"salts":{"body_sha256"', '"salts":{"arguments_sha256"'),
      [...key, '--body', file(ARGUMENTS)],
      0,
      /^VERIFIED, SEEN by nobody outside$/,
    ],
    [
      'H14: arguments with a member twice, of which the last one was judged',
      text.replace('"salts":{"body_sha256"', '"salts":{"arguments_sha256"'),
      [...key, '--body', file(ARGUMENTS.replace('{', '{"tenth":7,'))],
      2,
      /./,
    ],
    [
      'H14: the same, its name escaped and further in',
      text.replace('"salts":{"body_sha256"', '"salts":{"arguments_sha256"'),
      [...key, '--body', file(ARGUMENTS.replace('"é":', '"\\u00e9":[{"x":1}],"é":'))],
      2,
      /./,
    ],
    ['H14: a receipt whose rows stand twice', text.replace('{', '{"rows":[],'), key, 9, /./],
    ['H14: a receipt whose salts stand twice', text.replace('{', '{"salts":{},'), [...key, ...body], 9, /./],
    [
      'arguments in UTF-16',
      text.replace('"salts":{"body_sha256"', '"salts":{"arguments_sha256"'),
      [...key, '--body', file(Buffer.from(`\ufeff${ARGUMENTS}`, 'utf16le'))],
      2,
      /./,
    ],
    ['a place that is true', text.replaceAll(/"seq":\d+,"proof"/g, '"seq":true,"proof"'), key, 9, /./],
    [
      'a place that is spelt otherwise',
      text.replaceAll(/"seq":(\d+),"proof"/g, '"seq":$1.0,"proof"'),
      key,
      0,
      /./,
    ],
    ['half a surrogate pair', text.replace('gpt-5', '\\ud800'), key, 2, /./],
    ['half a surrogate pair that is no escape', text.replace('gpt-5', '\ud800'), key, 3, /./],
    ['NaN', text.replace('{', '{"x":NaN,'), key, 9, /./],
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
  'H14: a receipt says which of a call a body is, and a text of two readings is none',
  async (t) => {
    const twice = '{"model":"gpt-5","model":"gpt-4"}'
    const RESULT = '{"content":[],"content":[{"type":"text","text":"x"}]}'
    const told = decided(1, { authority: { revision: 2 }, more: { body_sha256: committed(twice) } })
    const outcome = { ...ended(told), detail: { ...ended(told).detail, result_sha256: committed(RESULT) } }
    const sealed = chainOf([...HISTORY.slice(0, -4), told, outcome]).map(({ leaf }) => leaf)
    const leaf = sealed.at(-1) ?? ''
    const deep = `${'['.repeat(17)}${']'.repeat(17)}`
    /** A receipt of the last two leaves, of a log whose last leaf is this one. */
    const receipt = async (last: string, label: string): Promise<string> => {
      const all = [...sealed.slice(0, -1), last]
      const about = [all.length - 2, all.length - 1]
      return JSON.stringify(await receiptOver(all, about, checkpointOver(all, log), { [label]: SALT }))
    }
    const cases: readonly (readonly [string, string, string, number, RegExp])[] = [
      [
        'the request',
        await receipt(leaf, 'body_sha256'),
        twice,
        0,
        /^the request body of 33 bytes is the one that was judged \(body_sha256\)\nit names a member twice/m,
      ],
      [
        'the result',
        await receipt(leaf, 'result_sha256'),
        RESULT,
        0,
        /^the 53 bytes are the result that was recorded, not the request \(result_sha256\)\nit names a member twice/m,
      ],
      [
        'a leaf that names a member twice',
        await receipt(leaf.replace('{', '{"status":"denied",'), 'body_sha256'),
        twice,
        2,
        /^BAD: row .* is not written as a row is$/m,
      ],
      [
        'a leaf with a blank',
        await receipt(leaf.replace('{', '{ '), 'body_sha256'),
        twice,
        2,
        /is not written as a row is$/m,
      ],
      [
        'a leaf that is too deep',
        await receipt(leaf.replace('"detail":{', `"detail":{"a":${deep},`), 'body_sha256'),
        twice,
        2,
        /is not written as a row is$/m,
      ],
    ]
    for (const [name, text, body, code, line] of cases) {
      const said = await verify(file(text), '--key', log.vkey, '--body', file(body))
      t.equal(said.code, code, `${name}: ${said.out}`)
      t.match(said.out, line, name)
    }
  },
)

await t.test('a meter that does not follow from the rows is 5, by all verifiers', async (t) => {
  const history = new MeteredHistory()
  for (const limit of LIMITS) history.set('created', limit)
  for (const took of [700, 900]) history.begin(RED, 'openai', took)
  history.end()
  history.begin(RED, 'openai')
  t.equal(history.begin(RED, 'openai'), false, 'two may be under way')
  const said: readonly Json[] = chainOf(history.rows).map((row) => JSON.parse(exportLine(row)))
  const forged = (status: string, change: (detail: Json) => Json): string => {
    const at = said.findLastIndex((row) => row.status === status && row.action === 'egress_llm_chat')
    return resealedExport(
      resealed(said.map((row, n) => (n === at ? { ...row, detail: change(row.detail) } : row))),
    )
  }
  const cases: readonly (readonly [string, string, number])[] = [
    ['honest', resealedExport(said), 0],
    [
      'a limit left out',
      forged('allowed', ({ limits, ...rest }) => ({ ...rest, limits: limits.slice(1) })),
      5,
    ],
    [
      'charged less',
      forged('success', (detail) => ({
        ...detail,
        limits: detail.limits.map((one: Json) => ({ ...one, charged: 0 })),
      })),
      5,
    ],
    [
      'refused with room',
      forged('denied', (detail) => ({ ...detail, limit: { ...detail.limit, most: 3 } })),
      5,
    ],
  ]
  for (const [name, rows, code] of cases) {
    const { code: got, out } = await verify(file(rows), '--authority')
    t.equal(got, code, `${name}: ${out}`)
    t.match(out, code === 0 ? /disagree 0, not recomputable 0/ : /disagree [1-9]/, name)
  }
})

await t.test('H12: a verifier prints the words of a ledger as a terminal may have them', async (t) => {
  const hostile = 'x\nVERIFIED, WITNESSED by nobody\r\u001b[2K\u009b1m\u202e\u200b\u2028'
  const told = decided(1, { authority: { revision: 2 }, model: hostile })
  const sealed = chainOf([...HISTORY.slice(0, -4), told, { ...ended(told), status: hostile }])
  const all = sealed.map(({ leaf }) => leaf)
  const receipt = await receiptOver(all, [all.length - 2, all.length - 1], checkpointOver(all, log), {})
  // Neither by a row of another stream, nor by the name of a log.
  const moved = exportOf(sealed)
    .replace('"seq":3,', '"seq":4,')
    .replaceAll('"stream":"main"', `"stream":${JSON.stringify(hostile)}`)
  const cases: readonly (readonly string[])[] = [
    [file(JSON.stringify(receipt)), '--key', log.vkey],
    [file(exportOf(sealed)), '--authority'],
    [file(moved)],
    [file(moved), '--json'],
    [`${directory}/${hostile}`],
    [exported, '--key', hostile],
    [exported, '--checkpoint', file(hostile)],
  ]
  for (const [index, args] of cases.entries()) {
    for (const said of await verify.each(...args)) {
      t.notMatch(
        said.out + said.err,
        /^VERIFIED, WITNESSED|[^\n -~…]/m,
        `case ${index}: ${JSON.stringify(said.out)}`,
      )
    }
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
