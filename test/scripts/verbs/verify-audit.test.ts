import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { appendCalls, entry, open, scratchDatabase, withRaw } from '../../support/db/scratch-ledger.ts'
import { sallyport } from '../../support/run.ts'

const verify = (...args: string[]) => sallyport(['verify-audit', ...args])

async function exported(
  directory: string,
  calls = 20,
): Promise<{ database: string; file: string; lines: string[] }> {
  const database = await scratchDatabase(directory)
  const ledger = await open(database)
  await appendCalls(ledger, calls)
  await ledger.close()
  const file = join(directory, 'audit.ndjson')
  const { code } = await sallyport(['export-audit', database, '--out', file])
  if (code !== 0) throw new Error(`the export ended with ${code}`)
  return { database, file, lines: readFileSync(file, 'utf8').trimEnd().split('\n') }
}

t.test(
  'docs/ledger.md#verifying: verify-audit says 0 for a whole ledger: database, export, standard input, and while it is written',
  async (t) => {
    const { database, file } = await exported(t.testdir())
    const whole = { code: 0, out: 'whole: 40 rows in 1 stream\n', err: '' }
    t.same(await verify(database), whole)
    t.same(await verify(file), whole)
    t.same(await sallyport(['verify-audit', '-'], {}, readFileSync(file, 'utf8')), whole)
    const ledger = await open(database)
    await ledger.commit({ entries: [entry()] })
    const busy = await verify(database, '--json')
    t.equal(busy.code, 0)
    t.same(JSON.parse(busy.out), { ok: true, rows: 41, streams: 1, open_decisions: 1 })
    await ledger.commit({ entries: [entry({ status: 'success' })] })
    await ledger.close()
    t.match(await verify('--help'), { code: 0, out: /usage:/ })
  },
)

t.test(
  'docs/ledger.md#verifying: verify-audit says 2 for a changed row, a gap or a duplicate, and names it',
  async (t) => {
    const { file, lines } = await exported(t.testdir())
    const [first = '', second = '', third = ''] = lines
    const note = second.replace('"detail"', '"comment":"approved","detail"')
    const cases: readonly (readonly [string, readonly string[], string])[] = [
      ['changed', lines.with(1, second.replace('acme::bot', 'acme::bob')), 'main:2'],
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
  'docs/ledger.md#verifying: verify-audit finds a tampered database, and warns where its guards are gone',
  async (t) => {
    const { database } = await exported(t.testdir())
    withRaw(database, (db) => db.exec('drop trigger audit_log_delete'))
    t.match(await verify(database), {
      code: 0,
      err: 'warning: the schema of the audit tables',
      out: 'whole: 40 rows',
    })
    withRaw(database, (db) => db.exec('delete from audit_log where seq = 17'))
    const { code, out } = await verify(database, '--json')
    t.equal(code, 2)
    t.match(JSON.parse(out), {
      ok: false,
      rows: 16,
      first_bad: { stream: 'main', seq: 17 },
      warning: /audit_log_delete is missing/,
    })
  },
)

t.test(
  'docs/ledger.md#verifying: verify-audit says 9 for what is not an export or cannot be read',
  async (t) => {
    const directory = t.testdir({ empty: '', prose: 'hello\n', 'other.ndjson': '{"a":1}\n' })
    const other = join(directory, 'other.db')
    withRaw(other, (db) => db.exec('create table t (a)'))
    for (const name of ['empty', 'prose', 'other.ndjson', 'other.db', 'missing', '.']) {
      const { code, err } = await verify(join(directory, name))
      t.equal(code, 9, name)
      t.match(err, /^verify-audit: .+\n$/, name)
    }
    t.match(await verify(), { code: 9, err: /usage:/ })
    t.match(await verify('--nonsense'), { code: 9 })
    t.match(await sallyport(['export-audit', other]), { code: 9, err: /^export-audit: / })
  },
)

const TWIN = `
import hashlib, json, sys
prev, seq = "0" * 64, 0
for line in sys.stdin.buffer:
    row = json.loads(line)
    claimed = row.pop("row_hash"); row.pop("result", None)
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
    t.match({ status, stdout }, { status: 0, stdout: '40\n' })
    t.not(twin(log.replace('"status":"success"', '"status":"denied"')).status, 0)
  },
)
