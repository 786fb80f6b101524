import { randomFillSync } from 'node:crypto'
import type { TelemetryOptions } from './options.ts'

/** The span of somebody else that a call belongs to, by its ids in lower-case hex. */
export interface RemoteParent {
  readonly traceId: string
  readonly spanId: string
  readonly flags: number
}

/** W3C Trace Context: version 00 has these parts and no more, a later one may. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
/** A later version may be longer. Characters. */
const MAX_TRACEPARENT = 512

/** Reads a `traceparent`. Null if it is none: its `tracestate` does not count then either. */
export function parseTraceparent(text: unknown): RemoteParent | null {
  if (typeof text !== 'string' || text.length > MAX_TRACEPARENT) return null
  const [, version, traceId = '', spanId = '', flags = '', more] = TRACEPARENT.exec(text) ?? []
  if (version === undefined || (version === '00' && more !== undefined)) return null
  return { traceId, spanId, flags: Number.parseInt(flags, 16) }
}

const SAMPLED = 1
/** Set by the maker of a trace whose id is random: it stays. */
const RANDOM = 2

export const printTraceparent = (traceId: string, spanId: string, flags: number): string =>
  `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}`

/** Tells whether the spans of a trace are exported, and returns the flags that say so to others. */
export function sampleTrace(
  sample: TelemetryOptions['sample'],
  traceId: string,
  parent: RemoteParent | null,
): { readonly isSampled: boolean; readonly flags: number } {
  const isSampled =
    typeof sample === 'number'
      ? partOf(traceId) < sample
      : sample === 'all' || parent === null || (parent.flags & SAMPLED) !== 0
  return { isSampled, flags: ((parent?.flags ?? 0) & RANDOM) | (isSampled ? SAMPLED : 0) }
}

/** Returns the place of a trace between 0 and 1, the same on every gateway: its last 52 bits, which are random. */
const partOf = (traceId: string): number => Number.parseInt(traceId.slice(-13), 16) / 2 ** 52

/** Random bytes are made for many ids at once. */
const random = Buffer.alloc(4_096)
let unused = 0

/** Returns a new id in lower-case hex: 16 bytes for a trace, 8 for a span. */
export function newTraceId(bytes: 8 | 16): string {
  if (unused < bytes) unused = randomFillSync(random).length
  unused -= bytes
  const id = random.toString('hex', unused, unused + bytes)
  return /^0+$/.test(id) ? newTraceId(bytes) : id
}
