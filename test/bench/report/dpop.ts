import type { Speed } from '../alone/es256.ts'
import { number, type Results } from '../results.ts'
import type { Row } from '../row.ts'
import { rowOf } from '../row.ts'
import { DPOP_RUNG, GATEWAY, GATEWAY_REQUIRED } from '../subjects.ts'
import { corePercent, optional, perSecond, table } from './table.ts'

/** A server with proofs, and the one that does the same without. */
const PAIRS = [
  { server: DPOP_RUNG, label: 'no upstream, optional', without: 'audit' },
  { server: GATEWAY, label: 'gateway, optional', without: GATEWAY },
  { server: GATEWAY_REQUIRED, label: 'gateway, required', without: GATEWAY },
] as const

/** Tables the cost of a proof on each request, beside the speed of bare verification. */
export function reportDpop({ rows, es256 }: Results): string {
  const found = PAIRS.flatMap((pair) =>
    rows
      .filter(({ server, point }) => server === pair.server && point.startsWith('DPoP'))
      .map((row) => ({ row, label: pair.label, without: withoutProof(rows, row, pair.without) })),
  )
  const lines = table(
    [
      'server, mode, what is sent',
      'c',
      'req/s',
      'p50 µs',
      'p99 µs',
      'CPU µs/req',
      'core %',
      'added CPU µs',
      '× bare ES256',
    ],
    found.map(({ row, label, without }) => [
      `${label}, ${row.point === 'DPoP' ? 'proof' : 'proof and token'}`,
      String(row.connections),
      perSecond(row),
      number(row.p50),
      number(row.p99),
      optional(row.cpuUs),
      corePercent(row),
      optional(added(row, without)),
      es256 ? number(row.perSecond / es256.bare.perSecond, 2) : '–',
    ]),
  )
  if (!es256) return lines
  return `${lines}\nOn the same core without any server: bare ES256 verification ${said(es256.bare)}; a proof checked whole, its key known, ${said(es256.proof)}.\n`
}

const withoutProof = (rows: readonly Row[], { connections }: Row, server: string): Row | undefined =>
  rowOf(rows, { server, point: 'json', connections })

const added = (row: Row, without: Row | undefined): number | null =>
  row.cpuUs === null || !without || without.cpuUs === null ? null : row.cpuUs - without.cpuUs

const said = ({ perSecond: rate, cpuUs }: Speed): string => `${number(rate)}/s, ${number(cpuUs)} µs each`
