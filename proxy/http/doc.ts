import type { z } from 'zod'
import type { Refusal, RefusalReason } from '../../plugins/refusal.ts'
import type { Reply } from './reply.ts'

/** A body, of a request or of an answer. */
export interface BodyDoc {
  /** Default: JSON. */
  readonly media?: string
  readonly schema: z.ZodType
  readonly example?: unknown
}

/** An answer of success. */
export interface AnswerDoc {
  readonly description: string
  /** One for each media type. Absent: an empty body. */
  readonly content?: readonly BodyDoc[]
  /** The headers that come with this answer and not with every one, by name, with their descriptions. */
  readonly headers?: Readonly<Record<string, string>>
}

/** The description of a route, an entry of `/openapi.json`: its purpose, its input and its answers. */
export interface RouteDoc {
  /** camelCase. Routes that share one doc are aliases of the first of them. */
  readonly name: string
  readonly summary: string
  /**
   * The callers: anybody, the holders of pinned certificates, operators; operators and holders of the token
   * for metrics.
   */
  readonly caller: 'anyone' | 'principal' | 'operator' | 'monitor'
  /** The capability that an operator must hold. */
  readonly demands?: string
  /** An object of the query's members. */
  readonly query?: z.ZodType
  /** The request headers that matter to this route, by name, with their effects. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: BodyDoc
  readonly answers: Readonly<Record<number, AnswerDoc>>
  /** The reasons for which a request may be refused here. */
  readonly reasons: readonly RefusalReason[]
  /** Renders a refusal as this route does. Default: `refusalReply`. */
  readonly refuse?: (refusal: Refusal) => Reply
}

/** The request id in examples. */
export const EXAMPLE_ID = 'req_0123456789abcdef0123456789abcdef'
