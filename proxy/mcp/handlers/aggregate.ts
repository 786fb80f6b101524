import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject } from '../../../db/support/json.ts'
import { confirmAuthority } from '../../../plugins/call-authority.ts'
import type { FindCallAccount } from '../gate/account.ts'
import { modernMeta } from '../protocol/versions.ts'
import { type ListedUris, urisOf } from '../state/listed-uris.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import { cursorOf, listItems } from '../upstream/large-message.ts'
import { responseResult, type UpstreamMessage } from '../upstream/message.ts'
import { ownAnswer, readFinalResponse } from '../upstream/own-answers.ts'
import { callOf, type DispatchFacts, inEitherEra, upstreamEra } from './rewrite.ts'
import { refusalOfUpstream } from './upstream-refusal.ts'

/** The pages of one upstream's list that are read; a longer one is cut off. */
const MAX_PAGES = 20
/** The amount of one upstream's list that is read. Characters of JSON. */
const MAX_CHARACTERS = 4 * 1024 * 1024

export interface AggregateDependencies {
  readonly upstream: McpUpstream
  readonly listedUris: ListedUris
  readonly findAccount: FindCallAccount
}

export interface AggregatedList {
  readonly items: readonly string[]
  readonly missing: readonly string[]
}

/**
 * Puts the prompts or resources of every bound resource in one list (docs/protocol.md#mcp-names). Leaves out
 * the items of an upstream that fails; refuses only if every one fails.
 */
export async function aggregateLists(
  sources: AggregateDependencies,
  facts: DispatchFacts,
  resources: readonly McpResource[],
  member: string,
): Promise<AggregatedList> {
  const { listedUris } = sources
  const offering = resources.filter((resource) => offersMember(resource, member))
  const parts = await Promise.allSettled(
    offering.map((of) => inEitherEra(of, facts.session, (as) => itemsOf(sources, facts, as, member))),
  )
  facts.hangup.signal.throwIfAborted()
  // Not a shorter list if some of it is not allowed any more: it is no list at all.
  await confirmAuthority(facts.granted.authority)
  const missing = offering.filter((_, index) => parts[index]?.status === 'rejected')
  const [first] = missing
  const failure = parts.find((part) => part.status === 'rejected')
  if (first && failure && missing.length === offering.length) throw refusalOfUpstream(failure.reason, first)
  const lists = offering.flatMap((resource, index) => {
    const part = parts[index]
    return part?.status === 'fulfilled' ? [{ resource, items: part.value }] : []
  })
  for (const { resource, items } of lists)
    listedUris.note(facts.granted.principal, resource, member, await urisOf(items, member))
  return {
    items: lists.flatMap(({ items }) => items),
    missing: missing.map(({ name }) => name),
  }
}

function offersMember({ server_facts: facts }: McpResource, member: string): boolean {
  const capabilities = facts?.capabilities
  return isObject(capabilities) && capabilities[member === 'prompts' ? 'prompts' : 'resources'] !== undefined
}

/** Reads the list of one upstream. A later page that fails costs the items before it nothing. */
async function itemsOf(
  { upstream, findAccount }: AggregateDependencies,
  unaccounted: DispatchFacts,
  resource: McpResource,
  member: string,
): Promise<string[]> {
  const facts = await withAccount(findAccount, unaccounted, resource)
  // Pages overlap when a list changes between them.
  const items = new Set<string>()
  const cursors = new Set<string | null>([null])
  let left = MAX_CHARACTERS
  let cursor: string | null = null
  do {
    const page: ItemPage | null = await pageOf(upstream, facts, resource, { member, cursor })
    if (page === null) break
    for (const item of page.items) {
      // One that would never fit is no reason to leave out those after it.
      if (item.length > MAX_CHARACTERS) continue
      left -= item.length
      if (left < 0) return [...items]
      items.add(item)
    }
    cursor = page.cursor
    left -= cursor?.length ?? 0
    // One that comes back would lead round in a circle.
    if (cursors.has(cursor) || left < 0) break
    cursors.add(cursor)
  } while (cursors.size <= MAX_PAGES)
  return [...items]
}

/** Has a list be read by the caller's own account, if its server takes one: it fails without. */
async function withAccount(
  find: FindCallAccount,
  facts: DispatchFacts,
  resource: McpResource,
): Promise<DispatchFacts> {
  if (resource.auth_type !== 'oauth') return facts
  return { ...facts, account: await find(facts, { resource, name: null, pinned: null }) }
}

interface ItemPage {
  readonly items: readonly string[]
  readonly cursor: string | null
}

async function pageOf(
  upstream: McpUpstream,
  facts: DispatchFacts,
  resource: McpResource,
  { member, cursor }: { readonly member: string; readonly cursor: string | null },
): Promise<ItemPage | null> {
  const era = upstreamEra(resource, facts.session)
  const call = callOf(facts, resource, era)
  const params = {
    ...(cursor !== null && { cursor }),
    ...(era === 'modern' && { _meta: { ...modernMeta({}), ...call.trace?.upcoming() } }),
  }
  try {
    const answer = await upstream.call({ ...call, params: JSON.stringify(params) })
    const response = await readFinalResponse(answer, (request) =>
      upstream.respond(call.permit, resource, call.owner, ownAnswer(request, call.client.capabilities)),
    )
    const result = responseResult(response)
    if (result === null) throw new McpUpstreamError('failed', 'a list was answered with an error')
    const items = await listOf(response, resource, { member, signal: call.hangup.signal })
    return { items, cursor: cursorOf(result) }
  } catch (error) {
    if (cursor !== null && error instanceof McpUpstreamError) return null
    throw error
  }
}

async function listOf(
  response: UpstreamMessage,
  { name, resource_id: key }: McpResource,
  { member, signal }: { readonly member: string; readonly signal: AbortSignal },
): Promise<readonly string[]> {
  const prefix = member === 'prompts' ? `${name}.` : ''
  const items = await listItems(response, { member, prefix }, { key, signal })
  if (items === null && responseResult(response)?.[member] !== null)
    throw new McpUpstreamError('failed', `there is no list ${member} in the result`)
  return items?.texts.filter((text) => text !== null) ?? []
}
