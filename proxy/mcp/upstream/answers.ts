import type { McpResource } from '../../../db/mcp/resources.ts'
import type { HangupSignal, MemoryReservation } from '../../../plugins/plugin.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import type { UpstreamCredentials } from './connections.ts'
import type { AnswerMessages, SizeLimits, StreamResumption } from './events.ts'
import type { ResponseHeaders } from './exchange.ts'
import type { UpstreamMessage } from './message.ts'

interface McpAnswerHead {
  readonly status: number
  readonly headers: ResponseHeaders
  /** Ours on the wire. Only an error with an HTTP status of 400 and up may have none. */
  readonly requestId: number
}

interface McpSingleAnswer extends McpAnswerHead {
  readonly streamed: false
  readonly response: UpstreamMessage
  readonly waiting: Readonly<Record<string, string>>
}

export interface McpStreamedAnswer extends McpAnswerHead {
  readonly streamed: true
  readonly messages: AnswerMessages
}

/** An MCP server's answer: the response alone, or an event stream that ends with it. */
export type McpAnswer = McpSingleAnswer | McpStreamedAnswer

export interface ExpectedAnswer {
  readonly requestId: number
  readonly era: ProtocolEra
  readonly credentials: UpstreamCredentials
  readonly limits: SizeLimits
  /** The account that the answer is counted on; null if no caller waits for it. */
  readonly held: MemoryReservation | null
  readonly resource: Pick<McpResource, 'resource_id' | 'endpoint_url' | 'auth_type'>
  readonly hangup: HangupSignal
  /** The session that the request was sent in: none, one without an id, or one that it named. */
  readonly session: 'none' | 'unnamed' | 'named'
  /** Called once, when nothing more can come. False: the upstream may still be at work on the request. */
  readonly settled: (answered: boolean) => void
  /** Has the rest of a stream that ended too early. Absent or null: a stream has none. */
  readonly resume?: StreamResumption['resume']
}
