import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Test } from 'tap'
import { stateText } from '../../../db/ledger/authority/ledger-state.ts'
import { type DecisionRecomputer, readState, recomputer } from '../../../db/ledger/verify/recompute.ts'
import { canonical, exportOf, leafOf, resealed } from '../db/resealed.ts'
import type { Json } from '../gateway.ts'

type RecomputedRow = Parameters<DecisionRecomputer['add']>[0]

/** A line of an export as the walk takes it. */
export const asStored = (row: Json): RecomputedRow =>
  ({ ...row, detail: canonical(row.detail), leaf: canonical(leafOf(row)) }) as RecomputedRow

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** The state before each row, and after the last, as `docs/verify.py` writes it; each is read again by it. */
const PYTHON = `
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)
walk, texts = verify.Walk(), []
rows = [verify.parse(line) for line in sys.stdin.buffer.read().splitlines()]
for row in [*rows, None]:
    text = walk.text()
    again = verify.Walk()
    texts.append(text.decode() if again.take(text) else "not read again")
    if row is not None:
        walk.see(row)
print(json.dumps(texts))
`
const SCRIPT = join(import.meta.dirname, '../../../docs/verify.py')

/** Asserts that both verifiers leave the same states, and go on from each of them as if they had walked. */
export function sameStates(t: Test, rows: readonly Json[]): void {
  const walk = recomputer()
  const texts = [stateText(walk.state())]
  for (const row of rows) {
    walk.add(asStored(row))
    texts.push(stateText(walk.state()))
  }
  const { stdout, stderr } = spawnSync('python3', ['-c', PYTHON, SCRIPT], {
    input: exportOf(rows),
    encoding: 'utf8',
    maxBuffer: 2 ** 30,
  })
  t.equal(stderr, '')
  const theirs: readonly string[] = JSON.parse(stdout)
  const other = texts.findIndex((text, at) => text !== theirs[at])
  t.equal(other, -1, 'all states are the same')
  if (other >= 0)
    t.same(
      JSON.parse(texts[other] ?? ''),
      theirs[other]?.startsWith('{') ? JSON.parse(theirs[other] ?? '') : theirs[other],
    )
  for (let at = 0; at < rows.length; at += 7) {
    const before = readState(texts[at] ?? '')
    if (!before) return void t.fail(`the state before row ${at} is not read`)
    const rest = recomputer({ before })
    for (const row of rows.slice(at)) rest.add(asStored(row))
    if (stateText(rest.state()) !== texts.at(-1)) return void t.fail(`another end from row ${at} on`)
    if (rest.result().disagree + rest.result().outcomes_without_decision > 0)
      return void t.fail(`a fault from row ${at} on`)
  }
}

/** The rows with one behind them that says the state before a leaf. */
export function withState(rows: readonly Json[], leaf: number, sha?: string): readonly Json[] {
  const walk = recomputer()
  for (const row of rows.slice(0, leaf)) walk.add(asStored(row))
  const last = rows.at(-1)
  const detail = { leaf, sha256: sha ?? sha256(stateText(walk.state())) }
  const row = { ...rows[0], stream: last.stream, action: 'ledger.state', status: 'success', detail }
  return resealed([...rows, { ...row, recorded_at: last.recorded_at, config_digest: last.config_digest }])
}

/** Odd values in the place of each member of a state: none is read, and none throws. */
export function oddStates(t: Test, rows: readonly Json[]): void {
  const walk = recomputer()
  for (const row of rows) walk.add(asStored(row))
  const honest: Json = JSON.parse(stateText(walk.state()))
  for (const name of Object.keys(honest))
    for (const odd of [5, 'x', [5], { x: 5 }, { x: null }, [[]], { x: { states: [] } }])
      if (
        canonical(odd) !== canonical(honest[name]) &&
        !(name === 'rotation' && odd === 'x') &&
        !(name === 'secret' && odd === 'x') &&
        !(name === 'leaf' && odd === 5)
      )
        t.equal(readState(canonical({ ...honest, [name]: odd })), null, `${name}: ${JSON.stringify(odd)}`)
  t.equal(readState(`${canonical(honest)} `), null, 'a blank more')
  t.equal(readState(canonical({ ...honest, more: 1 })), null, 'a member more')
}
