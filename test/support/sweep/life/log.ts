import { hash } from 'node:crypto'
import { stateText } from '../../../../db/ledger/authority/ledger-state.ts'
import { checkpointText } from '../../../../db/ledger/tree/checkpoint.ts'
import { cosignNote, noteOf, signNote } from '../../../../db/ledger/tree/note.ts'
import { compactTree } from '../../../../db/ledger/tree/walk.ts'
import { recomputer } from '../../../../db/ledger/verify/recompute.ts'
import { entry } from '../../db/scratch-ledger.ts'
import type { Json } from '../../gateway.ts'
import { type Signer, signer } from '../../sealed-log.ts'
import { type Life, lived, NOBODY } from './life.ts'
import type { Plan } from './steps.ts'
import { lineOf, Writing } from './writing.ts'

/** The keys of one run: the log's, one behind the other; a witness's; and those of somebody who has no right to sign. */
export interface Ring {
  readonly log: readonly Signer[]
  readonly witness: Signer
  readonly thief: Signer
}

export const ring = (): Ring => ({
  log: Array.from({ length: 12 }, () => signer()),
  witness: signer('witness.example/w1', 'witness'),
  thief: signer(),
})

/** A checkpoint that was signed, as it was kept elsewhere. */
export interface Kept {
  readonly size: number
  readonly note: string
}

/** An honest history that was sealed. */
export interface SealedLog {
  readonly life: Life
  /** The rows as an export has them, and the same as values. */
  readonly lines: readonly string[]
  readonly rows: readonly Json[]
  readonly leaves: readonly string[]
  /** Smallest first; the last is over all rows, and a witness has cosigned it. */
  readonly kept: readonly Kept[]
  /** The keys that have signed, the newest first. */
  readonly keys: readonly Signer[]
}

const WITNESSED_AT = 1_790_000_000

/** Plays a history and seals it. */
export function sealedLog(plan: Plan, { log, witness }: Ring): SealedLog {
  const life = lived(plan)
  const lines = life.written.map(lineOf)
  const leaves = life.written.map(({ row }) => row.leaf)
  const used = new Set(life.sealed.flatMap(({ keys }) => keys))
  const kept = life.sealed.map(({ size, keys }, index) => {
    const isLast = index === life.sealed.length - 1
    return {
      size,
      note: signed(
        leaves.slice(0, size),
        keys.map((key) => log[key % log.length] ?? witness),
        isLast || index % 2 === 0 ? witness : null,
      ),
    }
  })
  const keys = [...used].toSorted((a, b) => b - a).map((key) => log[key % log.length] ?? witness)
  return { life, lines, rows: lines.map((line) => JSON.parse(line)), leaves, kept, keys }
}

/** The text of the state that the first rows of a log have left (docs/ledger.md#state). */
export function stateBehind({ life }: SealedLog, count: number): string {
  const walk = recomputer({ judges: false })
  for (const { row } of life.written.slice(0, count)) walk.add(row)
  return stateText(walk.state())
}

/** The same log with a row more, which says the state before a leaf; a witness has cosigned it. */
export function statedLog(log: SealedLog, leaf: number, { witness }: Ring): SealedLog {
  const writing = new Writing(log.life.written)
  const { stream = 'main', recorded_at: at = '' } = writing.written.at(-1)?.row ?? {}
  const detail = { leaf, sha256: hash('sha256', stateBehind(log, leaf)) }
  writing.write(
    stream,
    entry({ ...NOBODY, at: Date.parse(at), action: 'ledger.state', status: 'success', detail }),
  )
  const { written } = writing
  const leaves = written.map(({ row }) => row.leaf)
  const note = signed(leaves, log.keys.slice(0, 1), witness)
  const lines = written.map(lineOf)
  return {
    ...log,
    ...{ life: { ...log.life, written }, lines, leaves, rows: lines.map((line) => JSON.parse(line)) },
    kept: [...log.kept, { size: leaves.length, note }],
  }
}

/** A checkpoint over leaves, signed by keys of the log and perhaps cosigned. */
export function signed(leaves: readonly string[], keys: readonly Signer[], witness: Signer | null): string {
  const tree = compactTree()
  for (const leaf of leaves) tree.add(leaf)
  const text = checkpointText({ origin: keys[0]?.name ?? '', size: leaves.length, root: tree.root() })
  const lines = keys.map(({ name, privateKey }) => signNote(text, name, privateKey))
  if (witness) lines.push(cosignNote(text, witness.name, witness.privateKey, WITNESSED_AT))
  return noteOf(text, lines)
}

/** The file of an anchor (docs/ledger.md#anchors). */
export const anchorFile = (kept: readonly Kept[]): string => kept.map(({ note }) => note).join('\n')
