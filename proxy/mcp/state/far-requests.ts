import { randomBytes } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import { findMcpResource } from '../../../db/mcp/resources.ts'
import type { NoticeChannel } from '../../../db/support/notices.ts'
import type { CapabilityDemand } from '../../../plugins/facts.ts'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import { monotonicClock } from '../../../plugins/secrets/throttle.ts'
import { responseMessage } from '../protocol/json-text.ts'
import type { McpRegistry } from './registry.ts'
import type { CallerAnswer, ServerRequest, ServerRequests } from './server-requests.ts'
import type { CallerSession } from './sessions.ts'

/** The time that another process may take to answer. ms. */
const ANSWER_MS = 2_000
const MAX_OPEN_QUESTIONS = 1_000

/** Answers a question of another process; null: nobody here knows. Must not reject. */
type PeerQuestionHandler = (text: string) => Promise<string | null>

/** Questions and answers between processes that share a database, by their notices. */
export class PeerProcesses {
  readonly home = randomBytes(8).toString('hex')
  readonly #notices: NoticeChannel
  readonly #answers = new Map<string, PeerQuestionHandler>()
  readonly #open = new Map<number, (text: string | null) => void>()
  #asked = 0

  constructor(notices: NoticeChannel) {
    this.#notices = notices
    notices.on(topicOf(this.home), (text) => this.#heard(text))
  }

  answer(kind: string, answers: PeerQuestionHandler): void {
    this.#answers.set(kind, answers)
  }

  /**
   * Asks the process of that name. Resolves with null if it knows nothing, is gone, or says nothing in time.
   * Throws a RangeError if the text is too long for a notice.
   */
  ask(home: string, kind: string, text: string): Promise<string | null> {
    if (this.#open.size >= MAX_OPEN_QUESTIONS) return Promise.resolve(null)
    this.#asked += 1
    const question = this.#asked
    const { promise, resolve } = Promise.withResolvers<string | null>()
    this.#say(home, { kind, question, from: this.home, text })
    this.#open.set(question, resolve)
    const timer = setTimeout(resolve, ANSWER_MS, null)
    return promise.finally(() => {
      clearTimeout(timer)
      this.#open.delete(question)
    })
  }

  #heard(said: string): void {
    const { kind, question, from, text, answer } = parseJsonObject(Buffer.from(said)) ?? {}
    if (typeof question !== 'number') return
    if (answer !== undefined) this.#open.get(question)?.(typeof answer === 'string' ? answer : null)
    if (typeof kind !== 'string' || typeof from !== 'string' || typeof text !== 'string') return
    const answers = this.#answers.get(kind)
    if (answers && HOME.test(from))
      void answers(text)
        .then((found) => this.#say(from, { question, answer: found }))
        // The asker learns of it in time.
        .catch(() => {})
  }

  #say(home: string, said: object): void {
    this.#notices.notify(topicOf(home), JSON.stringify(said))
  }
}

const HOME = /^[0-9a-f]{16}$/
const topicOf = (home: string): string => `mcp-to:${home}`

/** The answers of one principal in a minute that other processes are asked about: each asks all of them. */
const MAX_ASKED_PER_MINUTE = 600

export interface RemoteServerRequest extends Omit<ServerRequest, 'upstreamId' | 'respond'> {
  /** Hands the caller's answer to it. Resolves with false if the request, or its process, is gone. */
  readonly give: (answer: CallerAnswer) => Promise<boolean>
}

interface RemoteRequestDependencies {
  readonly database: Database
  readonly registry: Pick<McpRegistry, 'tool'>
  readonly here: ServerRequests
  readonly elsewhere: PeerProcesses
}

/** Finds server requests whose call is under way at another process; they are judged here. */
export class RemoteServerRequests {
  readonly #sources: RemoteRequestDependencies
  readonly #quota = new PrincipalQuota(monotonicClock, () => MAX_ASKED_PER_MINUTE)

  constructor(sources: RemoteRequestDependencies) {
    this.#sources = sources
    const { elsewhere, here } = sources
    elsewhere.answer('request', async (text) => describe(here, text))
    elsewhere.answer('answer', (text) => acceptAnswer(here, text))
  }

  /** Finds the request of that id, if it was put to this session. */
  async find(id: unknown, session: CallerSession | null): Promise<RemoteServerRequest | undefined> {
    const home = typeof id === 'string' ? REMOTE_REQUEST_ID.exec(id)?.[1] : undefined
    const { database, registry, elsewhere } = this.#sources
    if (home === undefined || home === elsewhere.home || session === null) return undefined
    if (this.#quota.consume(session.principalId) > 0) return undefined
    const asked = { id, session: session.id }
    const described = parse(await elsewhere.ask(home, 'request', JSON.stringify(asked)))
    const resource = described && (await findMcpResource(database, String(described.resource)))
    if (!described || !resource) return undefined
    const { tool: name } = described
    const sought = typeof name === 'string' ? await registry.tool(resource, name) : null
    return {
      resource,
      session,
      // Said by a process of ours.
      demand: described.demand as CapabilityDemand,
      pinned: sought?.tool ? { resource, tool: sought.tool } : null,
      give: async (answer) =>
        (await elsewhere.ask(home, 'answer', JSON.stringify({ ...asked, ...answer }))) === 'taken',
    }
  }
}

const REMOTE_REQUEST_ID = /^q-([0-9a-f]{16})-/

const parse = (text: string | null) => (text === null ? null : parseJsonObject(Buffer.from(text)))

function describe(here: ServerRequests, text: string): string | null {
  const { id, session } = parse(text) ?? {}
  const found = here.find(id, { id: String(session) })
  if (!found) return null
  const { resource, pinned, demand } = found
  return JSON.stringify({ resource: resource.resource_id, tool: pinned?.tool.name ?? null, demand })
}

async function acceptAnswer(here: ServerRequests, text: string): Promise<string | null> {
  const { id, session, member, text: given } = parse(text) ?? {}
  const found = here.find(id, { id: String(session) })
  // Once: of answers that were granted at one moment the first is passed on, whatever comes of it.
  if (!found || typeof given !== 'string' || !here.close(String(id))) return null
  const made = responseMessage(found.upstreamId, member === 'result' ? 'result' : 'error', given)
  return found.respond(made).then(
    () => 'taken',
    () => 'failed',
  )
}

export const isRemoteRequest = (
  request: ServerRequest | RemoteServerRequest,
): request is RemoteServerRequest => 'give' in request
