import { number, type Results } from '../results.ts'
import type { Row } from '../row.ts'
import { rowOf } from '../row.ts'
import { DIRECT, GATEWAY_MCP } from '../subjects.ts'
import { corePercent, optional, perSecond, table } from './table.ts'

interface Line {
  readonly point: string
  readonly label: string
  /** The point at which the server itself is asked the same. */
  readonly direct: string
}

const line = (point: string, label: string, direct = point): Line => ({ point, label, direct })

const LINES: readonly Line[] = [
  line('mcp legacy', 'legacy'),
  line('mcp legacy half load', 'legacy, half load'),
  line('mcp legacy DPoP', 'legacy, a fresh proof each', 'mcp legacy'),
  line('mcp modern', 'modern'),
  line('mcp modern half load', 'modern, half load'),
  line('mcp modern DPoP', 'modern, a fresh proof each', 'mcp modern'),
  line('mcp modern progress', 'modern, 10 events and the result'),
  line('mcp legacy to modern', 'legacy caller, modern server', 'mcp modern'),
]

/** Tables tools/call through the gateway beside the same MCP server asked directly. */
export function reportMcp({ rows }: Results): string {
  const pairs = LINES.flatMap(({ point, label, direct }) =>
    rows
      .filter((row) => row.server === GATEWAY_MCP && row.point === point)
      .map((row) => {
        const { connections } = row
        return { label, row, direct: rowOf(rows, { server: DIRECT, point: direct, connections }) }
      }),
  )
  return table(
    [
      'tools/call',
      'c',
      'calls/s',
      'CPU µs/call',
      'core %',
      'p50 µs',
      'p99 µs',
      'direct/s',
      'p50 µs',
      'p99 µs',
      'added p50',
      'added p99',
    ],
    pairs.map(({ label, row, direct }) => [
      label,
      String(row.connections),
      perSecond(row),
      optional(row.cpuUs),
      corePercent(row),
      number(row.p50),
      number(row.p99),
      ...besides(row, direct),
    ]),
  )
}

function besides(row: Row, direct: Row | undefined): readonly string[] {
  if (!direct) return ['–', '–', '–', '–', '–']
  return [
    perSecond(direct),
    number(direct.p50),
    number(direct.p99),
    number(row.p50 - direct.p50),
    number(row.p99 - direct.p99),
  ]
}
