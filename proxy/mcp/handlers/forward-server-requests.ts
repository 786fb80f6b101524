import type { CallDestination } from '../gate/checks.ts'
import { applyEdits, memberText } from '../protocol/json-text.ts'
import type { ServerRequest, ServerRequests } from '../state/server-requests.ts'
import type { CallerSession } from '../state/sessions.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import { messageObject, type UpstreamMessage } from '../upstream/message.ts'
import { endlessRequestsError, offerOwnAnswer, ownAnswer, RequestCount } from '../upstream/own-answers.ts'
import {
  type DispatchFacts,
  rewriteMessage,
  upstreamClient,
  upstreamEra,
  upstreamSessionOwner,
} from './rewrite.ts'

const MAX_FORWARDED = 64
interface ForwarderDependencies {
  readonly upstream: Pick<McpUpstream, 'respond'>
  readonly serverRequests: ServerRequests
}

/**
 * The requests of an upstream during one call: put to a caller that can be asked, answered here otherwise.
 */
export class ServerRequestForwarder {
  readonly #sources: ForwarderDependencies
  readonly #facts: DispatchFacts
  readonly #to: CallDestination
  readonly #open: { readonly id: string; readonly upstreamId: string }[] = []
  readonly #requests = new RequestCount()

  constructor(sources: ForwarderDependencies, facts: DispatchFacts, to: CallDestination) {
    this.#sources = sources
    this.#facts = facts
    this.#to = to
  }

  /** Returns the request as the caller sees it; null: it was answered here. Throws McpUpstreamError. */
  async forward(message: UpstreamMessage): Promise<Buffer | null> {
    this.#requests.add()
    const { session } = this.#facts
    if (session === null || !this.#reachesCaller(session, message)) return this.#answer(message)
    return this.#put(session, message)
  }

  /** Answers a request that nobody can be asked, because the caller waits for one whole answer. */
  async decline(message: UpstreamMessage): Promise<void> {
    this.#requests.add()
    await this.#answer(message)
  }

  /** Returns the notice that takes back a question as its caller knows it; null if none is open. */
  cancelled(notice: UpstreamMessage): Buffer | null {
    const params = messageObject(notice, 'params')
    const upstreamId = params && memberText(params, 'requestId')
    const asked = this.#open.find((one) => one.upstreamId === upstreamId)
    if (!params || !asked || !this.#sources.serverRequests.close(asked.id)) return null
    return rewriteMessage(notice, { params: applyEdits(params, { requestId: JSON.stringify(asked.id) }) })
  }

  close(): void {
    for (const { id } of this.#open) this.#sources.serverRequests.close(id)
  }

  #reachesCaller(session: CallerSession, message: UpstreamMessage): boolean {
    return this.#facts.message.era === 'legacy' && canBeAsked(session, message)
  }

  #put(session: CallerSession, message: UpstreamMessage): Buffer {
    if (this.#open.length === MAX_FORWARDED) throw endlessRequestsError()
    const { resource, pinned } = this.#to
    const { demand } = this.#facts.granted
    const upstreamId = memberText(message, 'id') ?? 'null'
    const respond: ServerRequest['respond'] = (text, permit = this.#facts.granted) =>
      this.#sources.upstream.respond(permit, resource, upstreamSessionOwner(this.#facts), text)
    const request = { resource, pinned, session, demand, upstreamId, respond }
    const id = this.#sources.serverRequests.open(request)
    this.#open.push({ id, upstreamId })
    return rewriteMessage(message, { id: JSON.stringify(id) })
  }

  async #answer(message: UpstreamMessage): Promise<null> {
    const { resource } = this.#to
    const { session, granted } = this.#facts
    const era = upstreamEra(resource, session)
    if (era === 'modern') throw new McpUpstreamError('failed', 'a request came on the answer stream')
    const text = ownAnswer(message, upstreamClient(this.#facts, era).capabilities)
    await offerOwnAnswer(
      this.#sources.upstream.respond(granted, resource, upstreamSessionOwner(this.#facts), text),
    )
    return null
  }
}

export const CAPABILITY_BY_QUESTION: ReadonlyMap<unknown, string> = new Map([
  ['elicitation/create', 'elicitation'],
  ['sampling/createMessage', 'sampling'],
  ['roots/list', 'roots'],
])

/** A client is asked only what it says it answers. Any other request is for this gateway. */
function canBeAsked({ capabilities }: CallerSession, { value: { method } }: UpstreamMessage): boolean {
  const capability = CAPABILITY_BY_QUESTION.get(method)
  return capability !== undefined && Object.hasOwn(capabilities, capability)
}
