import { detailOf, draftOf } from '../../../../db/ledger/record/draft.ts'
import type { Entry } from '../../../../db/ledger/record/entry.ts'
import {
  exportLine,
  GENESIS,
  hashOf,
  type LeafVersion,
  leafIn,
  leafOf,
  type Names,
  type StoredRow,
} from '../../../../db/ledger/record/leaf.ts'

/** A row with the names that an export puts beside it. */
export interface Written {
  readonly row: StoredRow
  readonly names: Names
}

/** Writes rows of many streams, each following the one before it in its stream. */
export class Writing {
  readonly written: Written[] = []
  readonly #heads = new Map<string, { readonly seq: number; readonly hash: string }>()

  write(stream: string, entry: Entry, version: LeafVersion = 2, names: Names = {}): void {
    const { seq, hash } = this.#heads.get(stream) ?? { seq: 0, hash: GENESIS }
    const leaf = leafIn(draftOf(entry, { stream, version: '0.6.4' }), hash, seq + 1)
    const { v: _v, ...fields } = JSON.parse(leaf)
    const row: StoredRow = { ...fields, detail: detailOf(leaf), row_hash: hashOf(leaf), leaf }
    const old = version === 2 ? leaf : leafOf(row, version)
    const of = { ...row, leaf: old, row_hash: hashOf(old) }
    this.written.push({ row: of, names })
    this.#heads.set(stream, { seq: seq + 1, hash: of.row_hash })
  }
}

export const lineOf = ({ row, names }: Written): string => exportLine(row, names)
