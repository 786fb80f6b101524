import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { chainOf, decided, exportOf } from '../../support/db/history.ts'
import { HISTORY, honestDatabase } from '../../support/db/ledger-with-tables.ts'
import { open, withRaw } from '../../support/db/scratch-ledger.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const verify = (...args: string[]) => sallyport(['verify', ...args])

const LENGTH = HISTORY.length
const NOT_WITNESSED = 'CONSISTENT, NOT WITNESSED\n'
const COUNTS =
  'decisions recomputed 2, disagree 0, not recomputable 0, allowed without outcome 0, outcomes without a decision 0\n'

async function exported(directory: string): Promise<{ database: string; file: string; lines: string[] }> {
  const database = await honestDatabase(directory)
  const file = join(directory, 'audit.ndjson')
  const { code } = await sallyport(['export-audit', database, '--out', file])
  if (code !== 0) throw new Error(`the export ended with ${code}`)
  return { database, file, lines: readFileSync(file, 'utf8').trimEnd().split('\n') }
}

t.test(
  'docs/ledger.md#verifying: verify says 0 for a whole ledger: database, URL, export, standard input, and while it is open',
  async (t) => {
    const { database, file } = await exported(t.testdir())
    const said = `whole: ${LENGTH} rows in 1 stream\n`
    const whole = { code: 0, out: `${said}${NOT_WITNESSED}`, err: '' }
    const judged = { ...whole, out: said + COUNTS + NOT_WITNESSED }
    t.same(await verify(database), judged)
    t.same(await verify(`sqlite:${database}`), judged)
    t.same(await sallyport(['verify-audit', database]), judged, 'by its former name')
    t.same(await verify(file), whole)
    t.same(await verify(file, '--authority'), judged)
    t.same(await sallyport(['verify', '-'], {}, readFileSync(file, 'utf8')), whole)
    const ledger = await open(database)
    const busy = await verify(database, '--json')
    await ledger.close()
    t.equal(busy.code, 0, busy.out)
    const found = { ok: true, rows: LENGTH, streams: 1, open_decisions: 0 }
    t.match(JSON.parse(busy.out), { ...found, authority: { recomputed: 2, disagree: 0, problems: [] } })
    t.match(await verify('--help'), { code: 0, out: /usage:/ })
  },
)

t.test('docs/ledger.md#recomputing: verify --authority says 5, and names the row', async (t) => {
  const calls = Array.from({ length: 30 }, (_, id) => decided(100 + id))
  const other = { status: 'denied', more: { reason: 'model_unknown' }, authority: { revision: 2 } }
  const text = exportOf(chainOf([...HISTORY, decided(50, other), ...calls]))
  const file = join(t.testdir(), 'audit.ndjson')
  writeFileSync(file, text)
  const { code, out } = await verify(file, '--authority')
  t.equal(code, 5)
  t.match(out, /disagree 30, not recomputable 1 \(why: 1 refused for what no row holds\), allowed without/)
  t.match(out, /^DISAGREES: row main:14 rests on revision 1 of acme::bot, but stands behind 2$/m)
  t.match(out, /^and 10 more$/m)
  t.match(out, /^30 allowed decisions have no outcome \(yet\)$/m)
  t.match(await verify(file), { code: 0 }, 'not asked')
  writeFileSync(file, text.replace('"status":"success"', '"status":"error"'))
  t.match(await verify(file, '--authority'), { code: 2, out: /^BAD: row main:1 was changed[^\n]*\n$/ })
})

t.test(
  'docs/ledger.md#verifying: verify says 2 for a changed row, a gap or a duplicate, and names it',
  async (t) => {
    const { file, lines } = await exported(t.testdir())
    const [first = '', second = '', third = ''] = lines
    const note = second.replace('"detail"', '"comment":"approved","detail"')
    const cases: readonly (readonly [string, readonly string[], string])[] = [
      ['changed', lines.with(1, second.replace('"optional"', '"off"')), 'main:2'],
      ['one more member', lines.with(1, note), 'main:2'],
      ['a member twice', lines.with(1, second.replace('{', '{"status":"denied",')), 'main:2'],
      ['respelt', lines.with(1, second.replace('{', '{ ')), 'main:2'],
      ['no row', lines.with(1, second.slice(0, 100)), 'main:2'],
      ['gap', lines.toSpliced(1, 1), 'main:2'],
      ['duplicate', [first, first, ...lines.slice(1)], 'main:1'],
      ['swapped', [first, third, second, ...lines.slice(3)], 'main:2'],
      ['start cut off', lines.slice(1), 'main:1'],
    ]
    for (const [name, tampered, place] of cases) {
      writeFileSync(file, `${tampered.join('\n')}\n`)
      const { code, out } = await verify(file)
      t.equal(code, 2, name)
      t.match(out, `BAD: row ${place} `, name)
    }
  },
)

t.test(
  'docs/ledger.md#verifying: verify says 2 for what was done to a database, a line for each finding, and 4 for one that was cut',
  async (t) => {
    const { database } = await exported(t.testdir())
    withRaw(database, (db) =>
      db.exec('drop trigger audit_rows_delete; update internal_agents set is_active = 0'),
    )
    const found = await verify(database)
    t.equal(found.code, 2)
    t.match(found.out, /^BAD: the schema of the audit tables .* audit_rows_delete is missing$/m)
    t.match(found.out, /^BAD: principal acme::bot: the tables have is_active false, the ledger says true$/m)
    t.match(found.out, new RegExp(`^rows that follow each other: ${LENGTH} rows`, 'm'))
    t.notMatch(found.out, /whole/)
    withRaw(database, (db) => db.exec('delete from audit_rows where seq = 5'))
    const { code, out } = await verify(database, '--json')
    t.equal(code, 2)
    t.match(JSON.parse(out), {
      ok: false,
      rows: 4,
      first_bad: { stream: 'main', seq: 5 },
      findings: [/audit_rows_delete is missing/],
    })

    const cut = await honestDatabase(t.testdir())
    withRaw(cut, (db) => {
      const trigger = db
        .prepare("select sql from sqlite_schema where name = 'audit_rows_delete'")
        .pluck()
        .get()
      db.exec(`drop trigger audit_rows_delete; delete from audit_rows where seq > 10; ${String(trigger)}`)
    })
    const short = await verify(cut)
    t.match(short, { code: 4, out: /^CUT SHORT: the rows end at main:10, but main:12 was written: .*$/m })
    t.match(JSON.parse((await verify(cut, '--json')).out), { ok: true, cut_short: /main:10/ })
  },
)

t.test('docs/ledger.md#verifying: verify says 9 for what is not an export or cannot be read', async (t) => {
  const directory = t.testdir({ empty: '', prose: 'hello\n', 'other.ndjson': '{"a":1}\n' })
  const other = join(directory, 'other.db')
  withRaw(other, (db) => db.exec('create table t (a)'))
  for (const name of ['empty', 'prose', 'other.ndjson', 'other.db', 'missing', '.']) {
    const { code, err } = await verify(join(directory, name))
    t.equal(code, 9, name)
    t.match(err, /^verify: .+\n$/, name)
  }
  t.match(await verify(), { code: 9, err: /usage:/ })
  t.match(await verify('--nonsense'), { code: 9 })
  const nowhere = `postgres://u:canary@/x?host=${encodeURIComponent(directory)}`
  t.match(await verify(nowhere), { code: 9, err: /^verify: (?!.*canary).+\n$/ })
  t.match(await sallyport(['export-audit', other]), { code: 9, err: /^export-audit: / })
})

const TWIN = `
import hashlib, json, sys
prev, seq = "0" * 64, 0
for line in sys.stdin.buffer:
    row = json.loads(line)
    claimed = row.pop("row_hash"); row.pop("result", None); row.pop("principal_name", None); row.pop("subject_name", None)
    leaf = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    seq += 1
    assert row["seq"] == seq and row["prev_hash"] == prev, seq
    prev = hashlib.sha256(leaf).hexdigest()
    assert prev == claimed, seq
print(seq)
`

t.test(
  'docs/threats.md#promises an export is proven by a second implementation that shares no code',
  async (t) => {
    const { file } = await exported(t.testdir())
    const twin = (input: string) => spawnSync('python3', ['-c', TWIN], { input, encoding: 'utf8' })
    const log = readFileSync(file, 'utf8')
    const { error, status, stdout } = twin(log)
    if (error) {
      t.pass('the Python twin', { skip: 'there is no python3 here' })
      return
    }
    t.match({ status, stdout }, { status: 0, stdout: `${LENGTH}\n` })
    t.not(twin(log.replace('"status":"success"', '"status":"denied"')).status, 0)
  },
)
