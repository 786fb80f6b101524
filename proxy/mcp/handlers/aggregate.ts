import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject } from '../../../db/support/json.ts'
import { confirmAuthority } from '../../../plugins/call-authority.ts'
import { modernMeta } from '../protocol/versions.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import { listItems } from '../upstream/large-message.ts'
import { responseResult, type UpstreamMessage } from '../upstream/message.ts'
import { ownAnswer, readFinalResponse } from '../upstream/own-answers.ts'
import { cursorOf } from '../upstream/tools.ts'
import { refusalOfUpstream } from './relay.ts'
import { type DispatchFacts, upstreamClient, upstreamEra, upstreamSessionOwner } from './rewrite.ts'

/**
 * The number of pages of one upstream's list that are read. A longer one is cut off: its own endpoint pages
 * it.
 */
const MAX_PAGES = 20
/** The amount of one upstream's list that is read. Characters of JSON. */
const MAX_CHARACTERS = 4 * 1024 * 1024

/** A list put together from several upstreams. */
export interface AggregatedList {
  /** Each item as JSON text. */
  readonly items: readonly string[]
  /** Resources that could not be asked, by name. */
  readonly missing: readonly string[]
}

/**
 * Puts the prompts or resources of every bound resource in one list (docs/protocol.md#mcp-names): a prompt is
 * named `<resource>.<prompt>`, a URI stays as it is. The items of an upstream that fails are left out;
 * refuses only if every one fails.
 */
export async function aggregateLists(
  upstream: McpUpstream,
  facts: DispatchFacts,
  resources: readonly McpResource[],
  member: string,
): Promise<AggregatedList> {
  const offering = resources.filter((resource) => offersMember(resource, member))
  const parts = await Promise.allSettled(offering.map((of) => itemsOf(upstream, facts, of, member)))
  facts.hangup.signal.throwIfAborted()
  // Not a shorter list if some of it is not allowed any more: it is no list at all.
  await confirmAuthority(facts.granted.authority)
  const missing = offering.filter((_, index) => parts[index]?.status === 'rejected')
  const [first] = missing
  const failure = parts.find((part) => part.status === 'rejected')
  if (first && failure && missing.length === offering.length) throw refusalOfUpstream(failure.reason, first)
  return {
    items: parts.flatMap((part) => (part.status === 'fulfilled' ? part.value : [])),
    missing: missing.map(({ name }) => name),
  }
}

/** Tells whether the upstream offered such things when it was read. */
function offersMember({ server_facts: facts }: McpResource, member: string): boolean {
  const capabilities = facts?.capabilities
  return isObject(capabilities) && capabilities[member === 'prompts' ? 'prompts' : 'resources'] !== undefined
}

async function itemsOf(
  upstream: McpUpstream,
  facts: DispatchFacts,
  resource: McpResource,
  member: string,
): Promise<string[]> {
  const { message, session, held, hangup } = facts
  const era = upstreamEra(resource, session)
  const owner = upstreamSessionOwner(facts)
  const client = upstreamClient(session, era)
  const items: string[] = []
  const cursors = new Set<string | null>([null])
  let left = MAX_CHARACTERS
  let cursor: string | null = null
  do {
    const params = {
      ...(cursor !== null && { cursor }),
      ...(era === 'modern' && { _meta: modernMeta({}) }),
    }
    const answer = await upstream.call({
      permit: facts.granted,
      resource,
      era,
      owner,
      method: message.method,
      params: JSON.stringify(params),
      headers: {},
      client,
      hangup,
      held,
    })
    const response = await readFinalResponse(answer, (request) =>
      upstream.respond(facts.granted, resource, owner, ownAnswer(request, client.capabilities)),
    )
    const result = responseResult(response)
    if (result === null) throw new McpUpstreamError('failed', 'a list was answered with an error')
    for (const item of await listOf(response, resource, { member, signal: hangup.signal })) {
      left -= item.length
      if (left < 0) return items
      items.push(item)
    }
    cursor = cursorOf(result)
    left -= cursor?.length ?? 0
    // One that comes back would lead round in a circle.
    if (cursors.has(cursor) || left < 0) return items
    cursors.add(cursor)
  } while (cursors.size <= MAX_PAGES)
  return items
}

async function listOf(
  response: UpstreamMessage,
  { name, resource_id: key }: McpResource,
  { member, signal }: { readonly member: string; readonly signal: AbortSignal },
): Promise<readonly string[]> {
  const prefix = member === 'prompts' ? `${name}.` : ''
  const items = await listItems(response, { member, prefix }, { key, signal })
  if (items === null) throw new McpUpstreamError('failed', `there is no list ${member} in the result`)
  return items.texts.filter((text, index): text is string => {
    if (text !== null && prefix !== '' && items.names[index] === null) {
      throw new McpUpstreamError('failed', 'a prompt has no name')
    }
    return text !== null
  })
}
