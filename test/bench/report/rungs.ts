import { number, type Results } from '../results.ts'
import { type Row, rowOf } from '../row.ts'
import { DPOP_RUNG, GATEWAY } from '../subjects.ts'
import { perSecond, table } from './table.ts'

interface Rung {
  readonly label: string
  readonly server: string
  readonly point: string
  /** The one that does everything but this. */
  readonly without: number | null
}

/** The rungs of security, and what each is put upon. */
const RUNGS: readonly Rung[] = [
  { label: 'TLS 1.3, HTTP, a static answer', server: 'node:https', point: 'json', without: null },
  {
    label: '+ mutual TLS, framing, the pinned certificate, log, metrics',
    server: 'pin',
    point: 'json',
    without: 0,
  },
  { label: '+ the body read and judged, the capability', server: 'capability', point: 'json', without: 1 },
  { label: '+ a durable decision before, an outcome after', server: 'audit', point: 'json', without: 2 },
  { label: '+ a fresh DPoP proof, claimed', server: DPOP_RUNG, point: 'DPoP', without: 3 },
  { label: '+ proxying, without proofs: the whole gateway', server: GATEWAY, point: 'json', without: 3 },
  { label: '+ proxying, with proofs', server: GATEWAY, point: 'DPoP', without: 5 },
]

/** Tables the price of each rung: processor time beside the one that does everything but this. */
export function reportRungs({ rows }: Results): string {
  const found = RUNGS.map(({ server, point }): Row | undefined =>
    rowOf(rows, { server, point, connections: 64 }),
  )
  return table(
    ['rung, c=64', 'req/s', 'CPU µs/req', 'price, CPU µs'],
    RUNGS.flatMap(({ label, without }, index) => {
      const row = found[index]
      if (!row || row.cpuUs === null) return []
      const below = without === null ? undefined : found[without]?.cpuUs
      const price = typeof below === 'number' ? number(row.cpuUs - below) : '–'
      return [[label, perSecond(row), number(row.cpuUs), price]]
    }),
  )
}
