import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { Reply } from '../http/reply.ts'
import type { BareRoute } from '../http/route.ts'

const SENT = [
  'accept',
  'authorization',
  'content-type',
  'dpop',
  'last-event-id',
  'mcp-method',
  'mcp-name',
  'mcp-protocol-version',
  'mcp-session-id',
  'x-api-key',
  'x-client-request-id',
  'x-request-id',
]

const EXPOSED = [
  'allow',
  'audit-receipt',
  'date',
  'dpop-nonce',
  'mcp-session-id',
  'ratelimit',
  'ratelimit-policy',
  'request-id',
  'retry-after',
  'www-authenticate',
  'x-request-id',
  'x-should-retry',
].join(', ')

/** A header that repeats an argument of a tool (MCP 2026-07-28): the tool's author names it. */
const ARGUMENT = /^mcp-param-[!#$%&'*+.^_`|~\w-]{1,64}$/
const MAX_ARGUMENTS = 64

/** The time for which a browser may remember the answer to its question. Seconds. */
const REMEMBERED_S = 600

export const readableRoute = (route: BareRoute, pages: ReadonlySet<string>): BareRoute => ({
  ...route,
  answer: (arrival, onAllowed) => {
    const page = arrival.headers.origin
    if (page !== undefined && pages.has(page)) Object.assign(arrival.answer, readableBy(page))
    return route.answer(arrival, onAllowed)
  },
})

/** Answers what browsers ask before a page calls (Fetch, CORS), and methods without a route. */
export function otherMethod(served: readonly BareRoute[], pages: ReadonlySet<string>) {
  const methods = served.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  return ({ method, headers, answer }: Arrival): Reply => {
    const { origin: page } = headers
    const listed = page !== undefined && pages.has(page)
    if (listed && method === 'OPTIONS') return preflight(page, headers, methods)
    // For a page to see: clients of MCP ask by GET whether there is a stream.
    if (listed) Object.assign(answer, readableBy(page))
    throw new Refusal('method_not_allowed', { headers: { allow: methods.join(', ') } })
  }
}

const mayRead = (page: string): Record<string, string> => ({
  'access-control-allow-origin': page,
  // A client certificate is a credential.
  'access-control-allow-credentials': 'true',
})

const readableBy = (page: string): Record<string, string> => ({
  ...mayRead(page),
  'access-control-expose-headers': EXPOSED,
  vary: 'Origin',
})

function preflight(page: string, headers: Arrival['headers'], methods: readonly string[]): Reply {
  const { 'access-control-request-headers': wanted = '' } = headers
  const named = wanted.toLowerCase().split(',', SENT.length + MAX_ARGUMENTS)
  const repeated = named.map((name) => name.trim()).filter((name) => ARGUMENT.test(name))
  return {
    status: 204,
    headers: {
      ...mayRead(page),
      'access-control-allow-methods': methods.join(', '),
      'access-control-allow-headers': [...SENT, ...repeated.slice(0, MAX_ARGUMENTS)].join(', '),
      'access-control-max-age': String(REMEMBERED_S),
      // The gateway of a private network, asked by a page of the internet that its operator has listed.
      ...(headers['access-control-request-private-network'] === 'true' && {
        'access-control-allow-private-network': 'true',
      }),
      vary: 'Origin, Access-Control-Request-Headers, Access-Control-Request-Private-Network',
    },
  }
}
