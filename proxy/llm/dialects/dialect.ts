import type { IncomingHttpHeaders } from 'node:http'
import type { UnknownRecord } from '../../../db/support/json.ts'
import type { PickedMembers } from './member-picker.ts'

/** One vendor's API. A further one is a file of this folder and its line in `registry.ts`. */
export interface Dialect<Name extends string = string> {
  readonly name: Name
  /** The endpoints, all of them POST, all of them gated by `llm.chat`. */
  readonly endpoints: readonly DialectEndpoint[]
  readonly key: KeyFormat
  readonly headers: DialectHeaders
  /** The parameters of a caller's URL that are passed on to providers. They choose a version of the API. */
  readonly query: readonly string[]
  readonly models: ModelListFormat
  readonly usage: UsageNames
  readonly outcome: OutcomeNames
}

/** An API by which a model is talked to: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses. */
export type ApiWire = 'chat' | 'responses' | 'messages'

export interface DialectEndpoint {
  /** This service's own path, matched exactly on the raw path (docs/threats.md#t17). */
  readonly path: string
  /** Appended to the provider's base_url. */
  readonly upstreamPath: string
  /** The API that it belongs to. Absent: every provider of the dialect may have it. */
  readonly wire?: ApiWire
  /** The API whose requests it counts the tokens of. */
  readonly counts?: ApiWire
  /** True: a body may leave the model to a stored prompt. Default: it must name one. */
  readonly modelOptional?: true
  /** The member by which a caller begins work to fetch by another request: it is refused if set. */
  readonly detachedBy?: string
  readonly doc: EndpointDoc
  /** True: its answers cost no tokens, and state none. Default false. */
  readonly isFree?: boolean
  /** The members of its answers, where they are other ones than the dialect's. */
  readonly usage?: UsageNames
  /** The error event of the API's own vocabulary, blank line included. It makes a client's loop throw. */
  readonly errorEvent: (fault: StreamFault, requestId: string) => string
}

/** The entry of an endpoint in `/openapi.json`. Endpoints of one name are aliases. */
export interface EndpointDoc {
  /** camelCase, unique among operations. */
  readonly name: string
  readonly summary: string
  readonly example: UnknownRecord
}

export interface StreamFault {
  readonly type: 'api_error'
  readonly code: string
  readonly message: string
  readonly param: null
}

export interface KeyFormat {
  readonly auth: 'api_key' | 'bearer'
  /** Lower case: the header that carries the key if `auth` is `api_key`. */
  readonly header: string
}

/** Names and prefixes are lower case, and add to the lists for every provider (docs/threats.md#t2, #t3). */
export interface DialectHeaders {
  readonly request: readonly string[]
  /** The headers of a caller's request that are passed on with its own key alone: they name an account. */
  readonly account: readonly string[]
  readonly defaults: Readonly<Record<string, string>>
  readonly response: readonly string[]
  readonly responsePrefixes: readonly string[]
}

export interface ListedModel {
  readonly id: string
  readonly name: string
  /** s since the epoch; 0 if it is unknown. */
  readonly created: number
}

/** A listed model, and the provider that a call of it would reach. */
export interface OfferedModel extends ListedModel {
  readonly provider: string
}

export interface ModelListFormat {
  /** Appended to the provider's base_url: path and query of its list. */
  readonly upstreamPath: string
  /** The parameter that asks for the page after an id, if the provider says that it has more. */
  readonly cursor: string
  /** Reads the provider's answer. Throws if it is no list. Does NOT bound its length: the catalogue does. */
  readonly parse: (answer: unknown) => readonly ListedModel[]
  /** Recognises a caller who expects this list. The first dialect's is for all whom none recognises. */
  readonly isExpected: (headers: IncomingHttpHeaders) => boolean
  readonly renderOne: (model: OfferedModel) => UnknownRecord
  /** Renders the answer to GET /v1/models. `query`: of the request, for a dialect that has pages. */
  readonly render: (models: readonly OfferedModel[], query?: string) => unknown
}

export type TokenCount =
  | 'input'
  | 'output'
  | 'total'
  | 'reasoning'
  | 'cache_read'
  | 'cache_write'
  | 'cache_write_5m'
  | 'cache_write_30m'
  | 'cache_write_1h'
  | 'cache_write_12h'
  | 'input_audio'
  | 'output_audio'
  | 'input_image'
  | 'output_image'

/** The members by which an answer, or an event of a stream, states what was used. */
export interface UsageNames {
  /** Members that may hold `usage`, `model` and `service_tier`; the answer's own win. */
  readonly holders: readonly string[]
  /** Members of `usage`, a dot for each level down; the first that was stated counts. */
  readonly tokens: Readonly<Record<TokenCount, readonly string[]>>
  /** The members of `tokens` that the vendor counts in addition to `input`, though the prompt includes them. */
  readonly besideInput: readonly string[]
  /** Members that count the uses of a tool that the provider runs, by path from the holder; the last wins. */
  readonly tools: Readonly<Record<string, string>>
  /** The path of the tokens of a tool that makes images. */
  readonly imageTool?: string
  readonly items: ItemNames
  /** True: an answer of the endpoint writes no tokens, and states none. Default false. */
  readonly isInputOnly?: boolean
}

/** The items of an answer that are uses of a provider's tools: counted where no member states how many. */
export interface ItemNames {
  /** The member of an answer that lists its items. */
  readonly list: string
  /** The type of the event of a stream that tells of one, and the member that holds it. */
  readonly event: string
  readonly member: string
  /** The members of an item that say which tool it used. */
  readonly picked: PickedMembers
  /** Tools by the items' `type`, or `name` where the type is `server_tool_use`. */
  readonly tools: Readonly<Record<string, string>>
}

export interface AnswerNames extends Pick<Dialect, 'usage' | 'outcome'> {
  /** Further members that are read of an answer that is too long to be read whole. Default: none. */
  readonly stated?: PickedMembers
}

/** The members and words by which an answer, or an event of a stream, says how the work went. */
export interface OutcomeNames {
  /** Members of which an answer has one. In an answer without any, a sentence at the top is a failure's. */
  readonly content: readonly string[]
  /** The types of the events that end a stream. An error, and `[DONE]`, always do. */
  readonly lastEvents: readonly string[]
  /** Members that say why a text ended, a dot for one level down. */
  readonly finishes: readonly string[]
}
