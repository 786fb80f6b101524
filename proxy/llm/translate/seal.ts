import { createHmac, timingSafeEqual } from 'node:crypto'
import { isObject } from '../../../db/support/json.ts'
import type { ApiWire } from '../dialects/dialect.ts'

/** Reasoning of a model, which its caller brings back: whoever else reads it learns what the model thought. */
export interface SealedReasoning {
  readonly provider: string
  readonly wire: ApiWire
  /** Exactly as it was given. */
  readonly blocks: readonly unknown[]
}

const PREFIX = 'sp1.'
const MAC_LENGTH = 16
/** Bytes. Longer reasoning is not sealed: it would come back with each request. */
const MAX_SEALED = 1024 * 1024

/** Seals and opens the reasoning of one principal. */
export class ReasoningSeal {
  readonly #key: Buffer

  /** `key`: the principal's own, at least 32 bytes. */
  constructor(key: Buffer) {
    this.#key = key
  }

  /** Returns text that the caller brings back; null: it is too long. */
  seal({ provider, wire, blocks }: SealedReasoning): string | null {
    const text = Buffer.from(JSON.stringify({ p: provider, w: wire, b: blocks }))
    if (text.length > MAX_SEALED) return null
    return PREFIX + Buffer.concat([text, this.#mac(text)]).toString('base64url')
  }

  /** Returns the blocks that this principal got of this provider and wire; null: they are not. */
  open(sealed: unknown, { provider, wire }: Omit<SealedReasoning, 'blocks'>): readonly unknown[] | null {
    if (typeof sealed !== 'string' || !sealed.startsWith(PREFIX)) return null
    const bytes = Buffer.from(sealed.slice(PREFIX.length), 'base64url')
    const text = bytes.subarray(0, -MAC_LENGTH)
    const mac = bytes.subarray(-MAC_LENGTH)
    if (mac.length !== MAC_LENGTH || !timingSafeEqual(mac, this.#mac(text))) return null
    const opened: unknown = JSON.parse(text.toString())
    const isOwn = isObject(opened) && opened.p === provider && opened.w === wire && Array.isArray(opened.b)
    return isOwn ? (opened.b as readonly unknown[]) : null
  }

  #mac(text: Buffer): Buffer {
    return createHmac('sha256', this.#key).update(text).digest().subarray(0, MAC_LENGTH)
  }
}
