import { z } from 'zod'
import type { OrganisationAuthority } from '../../../certs/authority/rotation.ts'
import type { Database } from '../../../db/database.ts'
import { refusedSince } from '../../../db/ledger/read/refused.ts'
import {
  countKeyless,
  countPrincipals,
  listPrincipals,
  type PrincipalRecord,
} from '../../../db/principals/read.ts'
import { listCapabilitySets } from '../../../db/principals/sets.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn, mapInBatches } from '../../../plugins/turns.ts'
import type { AdminContext } from '../operation/context.ts'
import { AGENT, type PrincipalKind } from '../operation/kinds.ts'
import { readOperation } from '../operation/operation.ts'
import { isLabelWord, listCursor } from '../operation/shapes.ts'
import { PRINCIPAL_SHAPES, type PrincipalView, principalView } from './view.ts'

interface PrincipalSearch {
  readonly words: readonly string[]
  /** Each a key, or a key and a value. */
  readonly labels: readonly (readonly [key: string, value?: string])[]
  /** Names of sets that were given last. */
  readonly sets: readonly string[]
  readonly capability: readonly string[]
  /** ms from now until which the certificate ends. */
  readonly expiresMs: number | null
  /** Unseen for this time up to now. ms. */
  readonly unusedMs: number | null
  /** Refused within this time up to now, or since midnight (UTC). ms. */
  readonly denied: number | 'today' | null
  readonly states: readonly State[]
  /** The CA of its certificate: the one that is being replaced, or the next one. Null: any. */
  readonly ca: keyof CaDigests | null
}

/** The CA that is being replaced and the next one, by their digests. Null: there is none. */
interface CaDigests {
  readonly old: string | null
  readonly new: string | null
}

function caDigestsOf({ digest, rotation }: OrganisationAuthority): CaDigests {
  if (rotation === null) return { old: null, new: null }
  const other = rotation.other.digest
  return rotation.phase === 'issuing' ? { old: other, new: digest } : { old: digest, new: other }
}

type State = 'active' | 'inactive' | 'empty' | 'keyless' | 'drifted'

type ParsedSearch =
  | { readonly ok: true; readonly search: PrincipalSearch }
  | { readonly ok: false; readonly message: string }

const SPAN = /^<?(\d{1,4})([dh])$/
const STATES: readonly string[] = ['active', 'inactive', 'empty', 'keyless', 'drifted']
const DAY_MS = 86_400_000
const UNIT_MS: Readonly<Record<string, number>> = { d: DAY_MS, h: 3_600_000 }

/** Reads words, and `name:value` for anything not in a name. Reports parts that it does not understand. */
function parseSearch(text: string): ParsedSearch {
  const search = {
    words: [] as string[],
    labels: [] as [string, string?][],
    sets: [] as string[],
    capability: [] as string[],
    states: [] as State[],
  }
  const spans: Record<string, number | null> = { expires: null, unused: null, denied: null }
  let isToday = false
  let ca: keyof CaDigests | null = null
  for (const part of text.split(/\s+/).filter((one) => one !== '')) {
    const [, name, value = ''] = /^(ca|cap|label|set|expires|unused|denied|is):(.*)$/.exec(part) ?? []
    // An id has two colons.
    const [, unknown] = /^([a-z]+)[:=](?!:)/.exec(part) ?? []
    if (name === undefined && unknown !== undefined)
      return {
        ok: false,
        message: `knows no ${unknown}: ; it knows ca:, cap:, label:, set:, expires:, unused:, denied: and is:`,
      }
    if (name === undefined) search.words.push(part.toLowerCase())
    else if (name === 'cap') search.capability.push(value)
    else if (name === 'ca') {
      if (value !== 'old' && value !== 'new') return { ok: false, message: 'ca: takes old, new' }
      ca = value
    } else if (name === 'label' || name === 'set') {
      const [key = '', label] = value.split('=', 2)
      if (!isLabelWord(key) || (label !== undefined && (name === 'set' || !isLabelWord(label))))
        return {
          ok: false,
          message: `${name}: takes ${name === 'set' ? 'the name of a set' : 'team, or team=red'}`,
        }
      if (name === 'set') search.sets.push(key)
      else search.labels.push(label === undefined ? [key] : [key, label])
    } else if (name === 'is') {
      if (!STATES.includes(value)) return { ok: false, message: `is: takes ${STATES.join(', ')}` }
      search.states.push(value as State)
    } else if (name === 'denied' && value === 'today') isToday = true
    else {
      const ms = spanOf(value)
      const or = name === 'denied' ? ', or today' : ''
      if (ms === null) return { ok: false, message: `${name}: takes a time, such as 30d or 12h${or}` }
      spans[name] = ms
    }
  }
  const { expires = null, unused = null, denied = null } = spans
  return {
    ok: true,
    search: { ...search, ca, expiresMs: expires, unusedMs: unused, denied: isToday ? 'today' : denied },
  }
}

function spanOf(text: string): number | null {
  const [, count, unit] = SPAN.exec(text) ?? []
  return count === undefined ? null : Number(count) * (UNIT_MS[unit ?? ''] ?? 0)
}

/**
 * The instant since which somebody must have been refused; null: that is not asked for. ms since the epoch.
 */
function deniedSince({ denied }: PrincipalSearch, at: number): number | null {
  if (denied === null) return null
  return denied === 'today' ? at - (at % DAY_MS) : Math.max(at - denied, 0)
}

/** The capabilities of each named set. */
type SetTemplates = ReadonlyMap<string, readonly string[]>

/** The facts that a search goes by besides the principal's own. `at`: ms since the epoch. */
interface SearchGround {
  readonly at: number
  readonly cas: CaDigests
  readonly templates: SetTemplates
}

/** True if a record fits the search, refusals aside. */
function matchesSearch(
  search: PrincipalSearch,
  record: PrincipalRecord,
  { at, cas, templates }: SearchGround,
): boolean {
  const { words, labels, sets, capability, expiresMs, unusedMs, states, ca } = search
  const text = `${record.principal_id} ${record.display_name ?? ''}`.toLowerCase()
  return (
    words.every((word) => text.includes(word)) &&
    capability.every((token) => record.capabilities.includes(token)) &&
    labels.every(([key, value]) => {
      const label = labelIn(record, key)
      return label !== undefined && (value === undefined || label === value)
    }) &&
    sets.every((name) => record.capability_set === name) &&
    states.every((state) => isIn(state, record, templates)) &&
    (ca === null || (cas[ca] !== null && record.cert_issuer === cas[ca])) &&
    (expiresMs === null ||
      (record.cert_not_after !== null && Date.parse(record.cert_not_after) - at < expiresMs)) &&
    (unusedMs === null || record.last_seen_at === null || at - Date.parse(record.last_seen_at) >= unusedMs)
  )
}

function isIn(state: State, record: PrincipalRecord, templates: SetTemplates): boolean {
  const { is_active: active, capabilities, dpop_jkt: jkt, capability_set: set } = record
  if (state === 'drifted') return set !== null && hasDrifted(capabilities, templates.get(set))
  if (state === 'empty') return capabilities.length === 0
  if (state === 'keyless') return jkt === null
  return active === (state === 'active')
}

/** A key may be the name of anything that every object has. */
const labelIn = ({ labels }: PrincipalRecord, key: string): string | undefined =>
  Object.hasOwn(labels, key) ? labels[key] : undefined

/** True if what somebody holds is not what the set has that it was given. */
export const hasDrifted = (held: readonly string[], template: readonly string[] | undefined): boolean =>
  template !== undefined &&
  (held.length !== template.length || template.some((capability) => !held.includes(capability)))

/** Text of a search (docs/dashboard.md#search). */
export const searchQuery = z
  .string()
  .max(256)
  .transform((text, context) => {
    const parsed = parseSearch(text)
    if (parsed.ok) return { text, search: parsed.search }
    context.addIssue({ code: 'custom', message: parsed.message })
    return z.NEVER
  })
  .meta({
    type: 'string',
    description:
      'Words of the name or id, `cap:TOKEN`, `label:KEY`, `label:KEY=VALUE`, `set:NAME`, `expires:30d`, `unused:30d`, `denied:today`, `denied:7d`, `is:active`, ' +
      '`is:inactive`, `is:empty`, `is:keyless`, `is:drifted`, `ca:old`, `ca:new`.',
    examples: ['cap:llm.chat unused:30d'],
  })

const limit = z
  .string()
  .transform(Number)
  .refine(
    (count) => Number.isInteger(count) && count >= 1 && count <= 1000,
    'must be a whole number from 1 to 1000',
  )
  .meta({ type: 'integer', minimum: 1, maximum: 1000 })

const page = z.strictObject({
  limit: limit.exactOptional(),
  cursor: listCursor.exactOptional(),
  q: searchQuery.exactOptional(),
  sort: z
    .string()
    .regex(/^(?:set|label:[a-z0-9][a-z0-9._-]{0,62})$/, 'must be set, or label: and a key')
    .exactOptional()
    .meta({
      description: 'By the set that each was given, or the value of a label; at most 1,000, on one page.',
    }),
})

const requiredForSearch = (
  _context: AdminContext,
  { query: { q } }: { readonly query: z.output<typeof page> },
): readonly AdminCapability[] => (q ? capabilitiesForSearch(q) : [])

type SearchQuery = z.output<typeof searchQuery>

export const capabilitiesForSearch = ({ search }: SearchQuery): readonly AdminCapability[] =>
  search.denied === null ? [] : ['admin.audit']

/**
 * GET /v1/admin/agents: newest first, a bare array; `?limit=&cursor=` pages it (docs/protocol.md#principals).
 */
export const listAgents = readOperation({
  name: 'listAgents',
  summary: 'Lists the agents, newest first.',
  alsoDemands: requiredForSearch,
  takes: { query: page },
  output: z.array(PRINCIPAL_SHAPES.agent),
  paged: true,
  run: async (context, { query }, { at }) => {
    const { list, next } = await pageOf(context, AGENT, query, at)
    return { value: list, next }
  },
})

interface PrincipalListing {
  readonly users?: readonly PrincipalView[]
  readonly workloads?: readonly PrincipalView[]
  readonly operators?: readonly PrincipalView[]
  readonly total: number
}

/**
 * GET /v1/admin/{users,workloads,operators}: a hundred at once, `{users: […], total}`
 * (docs/protocol.md#principals).
 */
export const listPrincipalsOf = (kind: PrincipalKind) =>
  readOperation({
    name: `list${kind.noun}s`,
    summary: `Lists the ${kind.plural}, newest first.`,
    alsoDemands: requiredForSearch,
    takes: { query: page },
    output: z.strictObject({
      [kind.plural]: z.array(PRINCIPAL_SHAPES[kind.type]),
      total: z.int(),
      // zod takes a computed key for any key; it is one of those above.
    }) as unknown as z.ZodType<PrincipalListing>,
    paged: true,
    run: async (context, { query }, { at }) => {
      const { list, next } = await pageOf(context, kind, { ...query, limit: query.limit ?? USUAL }, at)
      return {
        value: { [kind.plural]: list, total: await countPrincipals(context.database, kind.type) },
        next,
      }
    },
  })

const USUAL = 100

const AT_ONCE = 500

async function pageOf(
  context: AdminContext,
  kind: PrincipalKind,
  { q, sort, ...asked }: z.output<typeof page>,
  at: number,
) {
  const { items, nextCursor: cursor } =
    sort === undefined
      ? await findPrincipals(context, kind, { ...asked, q }, at)
      : { items: await sortedPrincipals(context, kind, { q, sort }, at), nextCursor: null }
  const again = { limit: String(asked.limit), ...(q && { q: q.text }) }
  return {
    list: await mapInBatches(items, AT_ONCE, (record) => principalView(kind, record)),
    next: cursor === null ? null : { ...again, cursor },
  }
}

/** Finds the principals of a page. */
async function findPrincipals(
  { database, authority }: AdminContext,
  kind: PrincipalKind,
  { q, ...asked }: Omit<z.output<typeof page>, 'sort' | 'q'> & { readonly q: SearchQuery | undefined },
  at: number,
) {
  const sets = q?.search.states.includes('drifted') ? await listCapabilitySets(database) : []
  const templates = new Map(sets.map(({ name, capabilities }) => [name, capabilities]))
  const ground = { at, cas: caDigestsOf(authority), templates }
  const wanted = q && ((record: PrincipalRecord) => matchesSearch(q.search, record, ground))
  const since = q ? deniedSince(q.search, at) : null
  const sift = since === null ? undefined : refusedAmong(database, since)
  return listPrincipals(database, kind.type, { ...asked, wanted, sift }, eventLoopTurn)
}

/** The principals that are sorted, or changed, at once. */
export const MAX_FOUND = 1_000

/** Finds all principals that fit a search. Refuses with `body_unprocessable` if they are too many. */
export async function findAllPrincipals(
  context: AdminContext,
  kind: PrincipalKind,
  q: SearchQuery | undefined,
  at: number,
): Promise<readonly PrincipalRecord[]> {
  const { items } = await findPrincipals(context, kind, { q, limit: MAX_FOUND + 1 }, at)
  if (items.length <= MAX_FOUND) return items
  const message = `finds more than ${MAX_FOUND} ${kind.plural}: narrow it`
  throw unprocessableBody([{ field: 'q', message }])
}

/** Sorts by a set or a label: those without come last, and equals newest first. */
async function sortedPrincipals(
  context: AdminContext,
  kind: PrincipalKind,
  { q, sort }: { readonly q: SearchQuery | undefined; readonly sort: string },
  at: number,
): Promise<readonly PrincipalRecord[]> {
  const found = await findAllPrincipals(context, kind, q, at)
  const key = sort.slice('label:'.length)
  const sortValueOf = (record: PrincipalRecord): string =>
    // Sorts after every value.
    (sort === 'set' ? record.capability_set : labelIn(record, key)) ?? '~'
  return found.toSorted((one, other) =>
    sortValueOf(one) < sortValueOf(other) ? -1 : Number(sortValueOf(one) > sortValueOf(other)),
  )
}

const refusedAmong =
  (database: Database, since: number) =>
  async (records: readonly PrincipalRecord[]): Promise<readonly PrincipalRecord[]> => {
    const refs = records.map(({ principal_ref: ref }) => ref)
    const refused = await refusedSince(database, refs, since, eventLoopTurn)
    return records.filter(({ principal_ref: ref }) => refused.has(ref))
  }

const MAX_COUNTED = 10_000

const count = z.int().min(0).max(MAX_COUNTED)

export const countKeylessPrincipals = readOperation({
  name: 'countKeylessPrincipals',
  summary: 'Counts the principals that have registered no proof key.',
  takes: {},
  output: z.strictObject({ agents: count, users: count, workloads: count }),
  run: async ({ database }) => ({
    value: {
      agents: await countKeyless(database, 'agent', MAX_COUNTED),
      users: await countKeyless(database, 'user', MAX_COUNTED),
      workloads: await countKeyless(database, 'workload', MAX_COUNTED),
    },
  }),
})
