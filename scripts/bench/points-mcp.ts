import type { Era } from '../../proxy/mcp/protocol/versions.ts'
import type { McpCall } from './load/mcp-messages.ts'
import type { Point } from './points.ts'

const sameEra = (era: Era, progress = false): McpCall => ({ era, server: era, progress })

/** What a server gets before the first call of an era. */
const PRIMES: Readonly<Record<Era, Point>> = {
  legacy: { name: 'mcp legacy', connections: 64, kind: sameEra('legacy') },
  modern: { name: 'mcp modern', connections: 64, kind: sameEra('modern') },
}

const calls = (name: string, connections: number, kind: McpCall): Point => ({
  name,
  connections,
  kind,
  prime: PRIMES[kind.era],
})

const ERAS: readonly Era[] = ['legacy', 'modern']

/** Caller and server of one era: what can also be asked of the server itself. */
export const MCP_DIRECT: readonly Point[] = [
  ...ERAS.flatMap((era) => {
    const name = `mcp ${era}`
    const half: Point = { ...calls(`${name} half load`, 64, sameEra(era)), rate: { halfOf: name } }
    return [...[1, 16, 64].map((connections) => calls(name, connections, sameEra(era))), half]
  }),
  calls('mcp modern progress', 16, sameEra('modern', true)),
]

/** What takes a gateway: an answer in the other era, a proof that is checked. */
export const MCP: readonly Point[] = [
  ...MCP_DIRECT,
  calls('mcp legacy to modern', 64, { era: 'legacy', server: 'modern', progress: false }),
  ...ERAS.map(
    (era): Point => ({
      ...calls(`mcp ${era} DPoP`, 64, sameEra(era)),
      as: 'proven',
      proof: 'fresh',
    }),
  ),
]
