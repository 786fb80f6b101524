import { randomUUID } from 'node:crypto'
import {
  type EventStore,
  type JSONRPCMessage,
  type McpServer,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'

/** The sessions of the legacy era (2025-11-25 and earlier): each one a server and a transport of its own. */
export interface Sessions {
  readonly fetch: (request: Request) => Promise<Response>
  readonly close: () => Promise<void>
}

/**
 * Serves sessions: a request without `Mcp-Session-Id` may open one with `initialize`, a request with one that
 * is not open is answered 404. A stream that broke off can be resumed with `Last-Event-ID`.
 */
export function sessions(make: () => McpServer): Sessions {
  const open = new Map<string, WebStandardStreamableHTTPServerTransport>()
  return {
    fetch: async (request) => {
      const id = request.headers.get('mcp-session-id')
      if (id === null) return (await transportOf(make, open)).handleRequest(request)
      const transport = open.get(id)
      if (transport) return transport.handleRequest(request)
      const error = { code: -32001, message: 'There is no such session.' }
      return Response.json({ jsonrpc: '2.0', id: null, error }, { status: 404 })
    },
    close: async () => {
      for (const transport of open.values()) await transport.close()
    },
  }
}

async function transportOf(
  make: () => McpServer,
  open: Map<string, WebStandardStreamableHTTPServerTransport>,
): Promise<WebStandardStreamableHTTPServerTransport> {
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: eventStore(),
    retryInterval: 100,
    onsessioninitialized: (id) => void open.set(id, transport),
    onsessionclosed: (id) => void open.delete(id),
  })
  await make().connect(transport)
  return transport
}

/** One session's events: an event's id is its place in the list. */
function eventStore(): EventStore {
  const events: { readonly streamId: string; readonly message: JSONRPCMessage }[] = []
  const at = (id: string) => events[Number(id)]
  return {
    storeEvent: async (streamId, message) => String(events.push({ streamId, message }) - 1),
    getStreamIdForEventId: async (id) => at(id)?.streamId,
    replayEventsAfter: async (lastEventId, { send }) => {
      const streamId = at(lastEventId)?.streamId ?? ''
      for (const [index, event] of events.entries()) {
        // A priming event is an empty message, and nothing to replay.
        const isNew = index > Number(lastEventId) && event.streamId === streamId
        if (isNew && 'jsonrpc' in event.message) await send(String(index), event.message)
      }
      return streamId
    },
  }
}
