import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import {
  entry,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

const PROGRAM = join(import.meta.dirname, '../../../support/db/append-until-killed.ts')
const CONFIG = 'cd'.repeat(32)

type Acknowledged = readonly [id: string, seq: number, hash: string]

/** Appends in a child process and kills it the hard way once it has said `enough` rows. */
async function appendAndKill(file: string, run: string, enough: number): Promise<readonly Acknowledged[]> {
  const child: ChildProcess = spawn(process.execPath, [PROGRAM, file, run], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const said: Acknowledged[] = []
  if (!child.stdout) throw new Error('the child has no standard output')
  for await (const line of createInterface({ input: child.stdout })) {
    if (said.length === enough) child.kill('SIGKILL')
    // The last line may be cut off by the kill.
    if (line.endsWith(']')) said.push(JSON.parse(line))
  }
  const [, signal] = await ended
  if (signal !== 'SIGKILL') throw new Error('the child ended before it was killed')
  return said
}

const storedIn = (file: string): ReadonlyMap<string, string> =>
  new Map(rowsOf(file).map(({ request_id: id, seq, row_hash: hash }) => [id ?? '', `${seq} ${hash}`]))

const lostFrom = (
  stored: ReadonlyMap<string, string>,
  said: readonly Acknowledged[],
): readonly Acknowledged[] => said.filter(([id, seq, hash]) => stored.get(id) !== `${seq} ${hash}`)

t.test(
  'F-01, F-02 after kill -9 under load every acknowledged row is there and the chain verifies',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    for (const [run, enough] of [0, 37, 400, 1_500].entries()) {
      const said = await appendAndKill(file, `r${run}`, enough)
      t.ok(said.length >= enough)
      const stored = storedIn(file)
      t.same(lostFrom(stored, said), [], 'acknowledged is stored')
      t.match(await verifyFile(file), { ok: true, rows: stored.size })
      // A unit's statement and its row: both or neither.
      const settings = withRaw(file, (db) =>
        db.prepare('select key from settings order by key').pluck().all(),
      )
      const rows = [...stored.keys()].filter((id) => Number(id.split('-')[1]) % 4 === 0)
      t.same(new Set(settings), new Set(rows))
    }
    const next = await open(file)
    t.equal(next.head?.seq, rowsOf(file).length)
    await next.close()
  },
)

t.test(
  'F-03 a failed fsync ends the writer for good; what was acknowledged before it is there',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const inject = 'inject=fsync,fdatasync:error=EIO:when=12+'
    const under = [
      '-f',
      '-qq',
      '-o',
      '/dev/null',
      '-e',
      'trace=fsync,fdatasync',
      '-e',
      inject,
      process.execPath,
    ]
    const { error, status, stdout, stderr } = spawnSync('strace', [...under, PROGRAM, file, 'r'], {
      encoding: 'utf8',
    })
    if (error || /ptrace/i.test(stderr)) {
      t.pass('a failed fsync', { skip: 'strace cannot be used here' })
      return
    }
    t.equal(status, 1)
    t.match(stderr, 'failed: disk I/O error')
    const said = stdout
      .trimEnd()
      .split('\n')
      .map((line): Acknowledged => JSON.parse(line))
    t.ok(said.length > 0)
    t.same(lostFrom(storedIn(file), said), [])
    t.match(await verifyFile(file), { ok: true })
  },
)

t.test(
  'docs/ledger.md#appending: at boot every allowed decision of an earlier run without outcome gets one, unknown',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const first = await open(file)
    await first.commit({
      entries: [entry({ action: 'service.started', status: 'success', request_id: null })],
    })
    await first.commit({
      entries: [
        entry({ request_id: 'done' }),
        entry({ request_id: 'done', status: 'truncated' }),
        entry({ request_id: 'refused', status: 'denied' }),
        entry({ request_id: 'cut', model: 'gpt-5', provider: null, detail: { body_bytes: 3 } }),
        entry({ request_id: 'cut-2', action: 'mcp_tools_call', tool: 'search', model: null }),
      ],
    })
    await first.close()

    const second = await open(file)
    // What this run has under way is no leftover.
    await second.commit({ entries: [entry({ request_id: 'mine' })] })
    t.equal(await second.recover(1_800_000_000_000, CONFIG), 2)
    t.equal(await second.recover(1_800_000_000_000, CONFIG), 0, 'exactly one outcome each')
    await second.close()
    const unknown = rowsOf(file).filter(({ status }) => status === 'unknown')
    const common = {
      recorded_at: '2027-01-15T08:00:00.000Z',
      detail: '{"reason":"crash"}',
      config_digest: CONFIG,
    }
    t.match(unknown, [
      { ...common, request_id: 'cut', action: 'egress_llm_chat', model: 'gpt-5', principal_id: 'acme::bot' },
      {
        ...common,
        request_id: 'cut-2',
        action: 'mcp_tools_call',
        tool: 'search',
        cert_thumbprint: 'ab'.repeat(32),
      },
    ])
    t.match(await verifyFile(file), { ok: true, open_decisions: 1 })
  },
)

t.test(
  'docs/ledger.md#appending: recovery looks no further back than the last start, and not at all after an orderly stop',
  async (t) => {
    const started = entry({ action: 'service.started', status: 'success', request_id: null })
    const stopped = entry({ action: 'service.stopped', status: 'success', request_id: null })
    const denied = Array.from({ length: 40 }, () => entry({ status: 'denied' }))
    const cases = [
      { rows: [entry({ request_id: 'a' })], expected: 1 },
      { rows: [entry({ request_id: 'a' }), started, entry({ request_id: 'b' })], expected: 1 },
      { rows: [started, entry({ request_id: 'a' }), stopped], expected: 0 },
      // A short run after a long one: asked row by row, where the others are asked over the whole index.
      { rows: [...denied, entry({ request_id: 'a' }), started, entry({ request_id: 'b' })], expected: 1 },
      {
        rows: [...denied, started, entry({ request_id: 'b' }), entry({ request_id: 'b', status: 'error' })],
        expected: 0,
      },
      { rows: [], expected: 0 },
    ]
    for (const { rows, expected } of cases) {
      const file = await scratchDatabase(t.testdir())
      const before = await open(file)
      await before.commit({ entries: rows })
      await before.close()
      const ledger = await open(file)
      t.equal(await ledger.recover(1_800_000_000_000, CONFIG), expected)
      await ledger.close()
    }
  },
)
