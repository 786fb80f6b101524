import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'

/** A tool of the demo: its description, and its answer. */
interface DemoTool {
  readonly description: string
  readonly answer: string
}

/** An MCP server made with the official SDK, on a port of its own. All callers are alike to it. */
export interface DemoMcpServer {
  readonly url: string
  /** The tools that were called, in order. */
  readonly called: readonly string[]
  /** Describes a tool in other words from now on, and does the same as before. */
  readonly describe: (tool: string, description: string) => void
  readonly stop: () => Promise<void>
}

/** Starts a server with these tools, by name; each takes no arguments. */
export async function startDemoMcpServer(
  name: string,
  given: Readonly<Record<string, DemoTool>>,
): Promise<DemoMcpServer> {
  const tools = new Map(Object.entries(given))
  const called: string[] = []
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name, version: '1.0.0' })
    for (const [tool, { description, answer }] of tools) {
      server.registerTool(tool, { description }, () => {
        called.push(tool)
        return { content: [{ type: 'text', text: answer }] }
      })
    }
    return server
  })
  const server = createServer((req, res) => {
    answerWith(handler.fetch, req, res).catch(() => res.destroy())
  })
  const port = await listenOnFreePort(server)
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    called,
    describe: (tool, description) => tools.set(tool, { answer: '', ...tools.get(tool), description }),
    stop: async () => {
      await handler.close()
      server.closeAllConnections()
      server.close()
    },
  }
}

type WebHandler = (request: Request) => Promise<Response>

async function answerWith(fetch: WebHandler, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { method = 'GET', url = '/', headers } = req
  const lines = Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)])
  const bytes = await buffer(req)
  const body = bytes.length === 0 ? null : new Uint8Array(bytes)
  const target = new URL(url, `http://${headers.host}`)
  const answer = await fetch(new Request(target, { method, headers: lines, body }))
  res.writeHead(answer.status, Object.fromEntries(answer.headers))
  if (answer.body) await pipeline(Readable.fromWeb(answer.body), res)
  else res.end()
}

function listenOnFreePort(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      // A TCP server that listens has an address of this shape.
      resolve((server.address() as AddressInfo).port)
    })
  })
}
