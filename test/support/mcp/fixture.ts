import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  McpServer,
  originValidationResponse,
} from '@modelcontextprotocol/server'
import type { Test } from 'tap'
import { addAsks } from './fixture-asks.ts'
import { addPrompts, addResources } from './fixture-content.ts'
import { addRounds, requestState } from './fixture-rounds.ts'
import { sessions } from './fixture-sessions.ts'
import { addTools, type Changed } from './fixture-tools.ts'
import { type McpRequest, serveFetch } from './web-server.ts'

export interface Fixture {
  /** Where it is: `http://127.0.0.1:<port>/mcp`. */
  readonly url: string
  /** Every HTTP request that reached it, in the order of arrival. */
  readonly requests: readonly McpRequest[]
}

/**
 * An MCP server of both eras, stateless in the modern one and with sessions in the legacy one, that has
 * everything the official conformance suite asks a server for. It runs in this process and ends with the
 * test. `eras: 'legacy'`: it was written before there was another, and takes every request for one of a
 * session; `modern`: it never had the older one.
 */
export async function startFixture(
  t: Test,
  { eras = 'both' }: { eras?: 'both' | 'legacy' | 'modern' } = {},
): Promise<Fixture> {
  const modern = createMcpHandler(() => make(modern.notify), { legacy: 'reject' })
  // Whoever holds a session hears of changes through it, not through a stream of the modern era.
  const legacy = sessions(() => make({ toolsChanged: () => {}, promptsChanged: () => {} }))
  t.teardown(async () => {
    await legacy.close()
    await modern.close()
  })
  const { origin, requests } = await serveFetch(t, async (request) => {
    const elsewhere =
      hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
      originValidationResponse(request, localhostAllowedOrigins())
    if (elsewhere) return elsewhere
    return eras === 'legacy' || (eras === 'both' && (await isLegacyRequest(request)))
      ? legacy.fetch(request)
      : modern.fetch(request)
  })
  return { url: `${origin}/mcp`, requests }
}

function make(changed: Changed): McpServer {
  const listChanged = { listChanged: true }
  const server = new McpServer(
    { name: 'fixture', version: '1.0.0' },
    {
      capabilities: {
        tools: listChanged,
        prompts: listChanged,
        resources: { subscribe: true, ...listChanged },
        completions: {},
        logging: {},
      },
      requestState,
    },
  )
  addTools(server, changed)
  addAsks(server)
  addRounds(server)
  addResources(server)
  addPrompts(server)
  server.server.setRequestHandler('resources/subscribe', () => ({}))
  server.server.setRequestHandler('resources/unsubscribe', () => ({}))
  server.server.setRequestHandler('completion/complete', ({ params }) => {
    const values = ['paris', 'park', 'party'].filter((value) => value.startsWith(params.argument.value))
    return { completion: { values, total: values.length, hasMore: false } }
  })
  return server
}
