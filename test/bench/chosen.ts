import type { Point } from './points.ts'
import type { Plan } from './workbench.ts'

/** Returns the name by which points are chosen and progress is told. */
export const nameOf = (server: string, { name, connections }: Point): string =>
  `${server}/${name} c=${connections}`

/** Tells whether a point, or what has no points, is measured. `name`: as {@link nameOf} makes it. */
export const isChosen = ({ only, short }: Plan, name: string): boolean =>
  name.includes(only) && (!short || SHORT.test(name))

/** What the targets are judged by, and each rung of the ladder once. */
const SHORT = new RegExp(
  `^(${[
    'gateway/(json c=(1|64|256)|half core c=64|burst c=16|paced c=64|denied c=64|DPoP c=64)',
    'gateway/(wrong type|oversized proof|other typ|stale iat) c=64',
    'gateway-mcp/mcp (legacy|modern) c=64',
    'gateway-mcp/mcp (legacy|modern) \\d+ KB( event)? c=4',
    'gateway-idle/.*',
    'gateway-translating/.*',
    'gateway-(no-)?telemetry/.*',
    '(gateway|http-proxy-3)/(230 KB|800 KB|4 MiB) c=4',
    'gateway/64 pictures at once c=64',
    'http-proxy-3/(json c=64|burst c=16)',
    '(dpop/DPoP|(audit|capability|pin|node:https)/json) c=64',
    'upstream/(json c=1|half core c=64|paced c=64)',
    '(against|cost)/json c=64',
    'streams/(gateway|http-proxy-3) c=(300|2000)',
    'ledger|limits|ledger-postgres|calls-postgres|rehearsal|dashboard|proofs|start|fault',
  ].join('|')})$`,
)
