import type { LedgerState } from '../authority/ledger-state.ts'
import { rowLeafVersion } from '../canonical/leaf-row.ts'
import type { LeafVersion, StoredRow } from '../record/leaf.ts'

/** The place of a row in its stream, which the next one must follow. */
export interface ChainPosition {
  readonly seq: number
  readonly hash: string
  readonly version: LeafVersion
}

/** The last row of each stream, among the rows so far. */
export class StreamHeads {
  readonly #heads: Map<string, { -readonly [name in keyof ChainPosition]: ChainPosition[name] }>

  /** `streams`: the heads before the first row. */
  constructor(streams: LedgerState['streams'] = {}) {
    this.#heads = new Map(
      Object.entries(streams).map(([stream, [seq, hash, version]]) => [stream, { seq, hash, version }]),
    )
  }

  get(stream: string): ChainPosition | undefined {
    return this.#heads.get(stream)
  }

  /** Takes the next row. One whose leaf says no version is of the first. */
  advance(row: StoredRow): void {
    const { stream, seq, row_hash: hash } = row
    const version = rowLeafVersion(row) ?? 1
    const head = this.#heads.get(stream)
    if (!head) this.#heads.set(stream, { seq, hash, version })
    else {
      head.seq = seq
      head.hash = hash
      head.version = version
    }
  }

  streams(): LedgerState['streams'] {
    return Object.fromEntries(
      [...this.#heads].map(([stream, { seq, hash, version }]) => [stream, [seq, hash, version] as const]),
    )
  }
}
