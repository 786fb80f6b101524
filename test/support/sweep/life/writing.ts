import { draftOf, leafDetailOf } from '../../../../db/ledger/record/draft.ts'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import {
  assembleLeaf,
  exportLine,
  GENESIS_HASH,
  hashOf,
  type LeafVersion,
  leafOf,
  type ReadableNames,
  type StoredRow,
} from '../../../../db/ledger/record/leaf.ts'

/** A row with the names that an export puts beside it. */
export interface Written {
  readonly row: StoredRow
  readonly names: ReadableNames
}

/** Writes rows of many streams, each following the one before it in its stream. */
export class Writing {
  readonly written: Written[] = []
  readonly #heads = new Map<string, { readonly seq: number; readonly hash: string }>()

  /** `written`: the rows so far. */
  constructor(written: readonly Written[] = []) {
    this.written.push(...written)
    for (const { row } of written) this.#heads.set(row.stream, { seq: row.seq, hash: row.row_hash })
  }

  write(stream: string, entry: LedgerEntry, version: LeafVersion = 2, names: ReadableNames = {}): void {
    const { seq, hash } = this.#heads.get(stream) ?? { seq: 0, hash: GENESIS_HASH }
    const leaf = assembleLeaf(draftOf(entry, { stream, version: '0.6.4' }), hash, seq + 1)
    const { v: _v, ...fields } = JSON.parse(leaf)
    const row: StoredRow = { ...fields, detail: leafDetailOf(leaf), row_hash: hashOf(leaf), leaf }
    const old = version === 2 ? leaf : leafOf(row, version)
    const of = { ...row, leaf: old, row_hash: hashOf(old) }
    this.written.push({ row: of, names })
    this.#heads.set(stream, { seq: seq + 1, hash: of.row_hash })
  }
}

export const lineOf = ({ row, names }: Written): string => exportLine(row, names)
