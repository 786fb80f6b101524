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
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { eventLoopTurn, mapInBatches } from '../../../plugins/turns.ts'
import type { AdminContext } from '../operation/context.ts'
import { AGENT, type PrincipalKind } from '../operation/kinds.ts'
import { readOperation } from '../operation/operation.ts'
import { listCursor } from '../operation/shapes.ts'
import { PRINCIPAL_SHAPES, type PrincipalView, principalView } from './view.ts'

interface PrincipalSearch {
  readonly words: readonly string[]
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

type State = 'active' | 'inactive' | 'empty' | 'keyless'

type ParsedSearch =
  | { readonly ok: true; readonly search: PrincipalSearch }
  | { readonly ok: false; readonly message: string }

const SPAN = /^<?(\d{1,4})([dh])$/
const STATES: readonly string[] = ['active', 'inactive', 'empty', 'keyless']
const DAY_MS = 86_400_000
const UNIT_MS: Readonly<Record<string, number>> = { d: DAY_MS, h: 3_600_000 }

/** Reads words, and `name:value` for anything not in a name. Reports parts that it does not understand. */
function parseSearch(text: string): ParsedSearch {
  const search = { words: [] as string[], capability: [] as string[], states: [] as State[] }
  const spans: Record<string, number | null> = { expires: null, unused: null, denied: null }
  let isToday = false
  let ca: keyof CaDigests | null = null
  for (const part of text.split(/\s+/).filter((one) => one !== '')) {
    const [, name, value = ''] = /^(ca|cap|expires|unused|denied|is):(.*)$/.exec(part) ?? []
    if (name === undefined) search.words.push(part.toLowerCase())
    else if (name === 'cap') search.capability.push(value)
    else if (name === 'ca') {
      if (value !== 'old' && value !== 'new') return { ok: false, message: 'ca: takes old, new' }
      ca = value
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

/** True if a record fits the search, refusals aside. `at`: ms since the epoch. */
function matchesSearch(
  search: PrincipalSearch,
  record: PrincipalRecord,
  { at, cas }: { readonly at: number; readonly cas: CaDigests },
): boolean {
  const { words, capability, expiresMs, unusedMs, states, ca } = search
  const text = `${record.principal_id} ${record.display_name ?? ''}`.toLowerCase()
  return (
    words.every((word) => text.includes(word)) &&
    capability.every((token) => record.capabilities.includes(token)) &&
    states.every((state) => isIn(state, record)) &&
    (ca === null || (cas[ca] !== null && record.cert_issuer === cas[ca])) &&
    (expiresMs === null ||
      (record.cert_not_after !== null && Date.parse(record.cert_not_after) - at < expiresMs)) &&
    (unusedMs === null || record.last_seen_at === null || at - Date.parse(record.last_seen_at) >= unusedMs)
  )
}

function isIn(state: State, { is_active: active, capabilities, dpop_jkt: jkt }: PrincipalRecord): boolean {
  if (state === 'empty') return capabilities.length === 0
  if (state === 'keyless') return jkt === null
  return active === (state === 'active')
}

/** Text of a search (docs/dashboard.md#search). */
const searchQuery = z
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
      'Words of the name or id, `cap:TOKEN`, `expires:30d`, `unused:30d`, `denied:today`, `denied:7d`, `is:active`, ' +
      '`is:inactive`, `is:empty`, `is:keyless`, `ca:old`, `ca:new`.',
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

const page = z.object({
  limit: limit.exactOptional(),
  cursor: listCursor.exactOptional(),
  q: searchQuery.exactOptional(),
})

const requiredForSearch = (
  _context: AdminContext,
  { query: { q } }: { readonly query: z.output<typeof page> },
): readonly AdminCapability[] => (q && q.search.denied !== null ? ['admin.audit'] : [])

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
  { database, authority }: AdminContext,
  kind: PrincipalKind,
  query: z.output<typeof page>,
  at: number,
) {
  const { q, ...asked } = query
  const now = { at, cas: caDigestsOf(authority) }
  const wanted = q && ((record: PrincipalRecord) => matchesSearch(q.search, record, now))
  const since = q ? deniedSince(q.search, at) : null
  const sift = since === null ? undefined : refusedAmong(database, since)
  const sifted = { ...asked, wanted, sift }
  const { items, nextCursor: cursor } = await listPrincipals(database, kind.type, sifted, eventLoopTurn)
  const again = { limit: String(query.limit), ...(q && { q: q.text }) }
  return {
    list: await mapInBatches(items, AT_ONCE, (record) => principalView(kind, record)),
    next: cursor === null ? null : { ...again, cursor },
  }
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

/** Counts callers in service without a registered proof key, by kind. */
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
