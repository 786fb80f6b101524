import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import type { Test } from 'tap'
import { type McpRequest, serveFetch } from './web-server.ts'

/** A tool as an MCP server lists it. */
export interface Listed {
  readonly name: string
  readonly description?: string
  readonly inputSchema: { type: 'object'; properties: Record<string, Record<string, string>> }
}

export interface ChangingServer {
  readonly url: string
  readonly requests: readonly McpRequest[]
  /** What it lists from now on. Null: it answers everything with an error. */
  list: (tools: readonly Listed[] | null) => void
}

export const tool = (name: string, description = `Does ${name}.`): Listed => ({
  name,
  description,
  inputSchema: { type: 'object', properties: { path: { type: 'string' } } },
})

/** An MCP server of both eras, made with the official SDK, whose tools change when a test says so. */
export async function changingServer(t: Test, ...tools: readonly Listed[]): Promise<ChangingServer> {
  let listed: readonly Listed[] | null = tools
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'changing', version: '1.0.0' }, { capabilities: { tools: {} } })
    server.server.setRequestHandler('tools/list', () => ({ tools: [...(listed ?? [])] }))
    return server
  })
  t.teardown(() => handler.close())
  const { origin, requests } = await serveFetch(t, async (request) =>
    listed === null ? new Response('down', { status: 500 }) : handler.fetch(request),
  )
  return {
    url: `${origin}/mcp`,
    requests,
    list: (now) => {
      listed = now
    },
  }
}
