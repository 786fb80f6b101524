import { type Destination, eraOf } from '../gate/destination.ts'
import { errorMessage, resultMessage } from '../protocol/json-rpc.ts'
import { edited, memberText } from '../protocol/json-text.ts'
import type { ServerRequests } from '../state/server-requests.ts'
import type { Session } from '../state/sessions.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import type { Message } from '../upstream/message.ts'
import { type Dispatched, ownerOf } from './outgoing.ts'

/** What an upstream may ask of its caller during one call. */
const MAX_QUESTIONS = 64
/** And in all, pings and what is declined included: each is answered with a request of ours. */
const MAX_REQUESTS = 1_024

interface Sources {
  readonly upstream: Pick<McpUpstream, 'respond'>
  readonly serverRequests: ServerRequests
}

/** What an upstream asks during one call: put to a caller that can be asked, answered here otherwise. */
export class Questions {
  readonly #sources: Sources
  readonly #facts: Dispatched
  readonly #to: Destination
  readonly #open: string[] = []
  #requests = 0

  constructor(sources: Sources, facts: Dispatched, to: Destination) {
    this.#sources = sources
    this.#facts = facts
    this.#to = to
  }

  /** The question as the caller sees it, or null where it was answered here. Throws McpUpstreamError where there is no end of them. */
  async put(message: Message): Promise<string | null> {
    this.#count()
    return this.#asked(message) ?? this.#answered(message)
  }

  /** Answers a question that nobody can be asked, because the caller waits for one whole answer. */
  async decline(message: Message): Promise<void> {
    this.#count()
    await this.#answered(message)
  }

  /** The call is over: nobody waits for an answer any more. */
  close(): void {
    for (const id of this.#open) this.#sources.serverRequests.close(id)
  }

  #count(): void {
    this.#requests += 1
    if (this.#requests > MAX_REQUESTS) throw endless()
  }

  #asked(message: Message): string | null {
    const { session, granted, message: call } = this.#facts
    const { demand } = granted
    const { resource, found } = this.#to
    if (!session || call.era !== 'legacy' || eraOf(resource, session) !== 'legacy') return null
    if (!canBeAsked(session, message)) return null
    if (this.#open.length === MAX_QUESTIONS) throw endless()
    const upstreamId = memberText(message, 'id') ?? 'null'
    const id = this.#sources.serverRequests.ask({ resource, found, session, demand, upstreamId })
    this.#open.push(id)
    return edited(message, { id: JSON.stringify(id) })
  }

  async #answered(message: Message): Promise<null> {
    const { resource } = this.#to
    if (eraOf(resource, this.#facts.session) === 'modern') {
      throw new McpUpstreamError('failed', 'a request came on the answer stream')
    }
    const id = memberText(message, 'id') ?? 'null'
    const error = '{"code":-32601,"message":"The caller cannot be asked."}'
    const text = message.value.method === 'ping' ? resultMessage(id, '{}') : errorMessage(id, error)
    await this.#sources.upstream.respond(this.#facts.granted, resource, ownerOf(this.#facts), text)
    return null
  }
}

const endless = (): McpUpstreamError => new McpUpstreamError('failed', 'it asks without end')

/** What a client of the legacy era says that it can be asked, by the method that asks (MCP 2025-11-25, client features). */
const CAPABILITIES: ReadonlyMap<unknown, string> = new Map([
  ['elicitation/create', 'elicitation'],
  ['sampling/createMessage', 'sampling'],
  ['roots/list', 'roots'],
])

/** Nobody is asked what he has not said that he can be asked, and nothing else is a question: a ping is for us. */
function canBeAsked({ capabilities }: Session, { value: { method } }: Message): boolean {
  const named = CAPABILITIES.get(method)
  return named !== undefined && Object.hasOwn(capabilities, named)
}
