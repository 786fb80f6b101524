import { limitFindings, type StoredLimits } from '../metered/compare-limits.ts'
import type { AccountState } from './accounts.ts'
import type { BoundValues } from './bound.ts'
import type { GrantState } from './grants.ts'
import type { LedgerReplay, ReplayedPrincipal, ReplayedResource } from './replay.ts'
import { type HonouredThumbprint, isInForce } from './rule.ts'
import type { OwnCas, PrincipalState, ReplayedTool, ResourceState } from './states.ts'

export interface StoredPrincipal extends PrincipalState {
  /** The name that rows of version 2 have for it: its id, or the pseudonym of a user. */
  readonly subject: string
  readonly id: string
  /** Resource ids by binding id. */
  readonly bindings: ReadonlyMap<string, string>
  /** The digests of the CAs that vouch for it. */
  readonly trustedCas: ReadonlySet<string>
  /** The agent's own CAs by their texts, and as its columns name them; null if it is not known by its SPIFFE id. */
  readonly bundle: { readonly ofTexts: OwnCas; readonly named: OwnCas } | null
  readonly waysIn: readonly string[]
}

export interface StoredResource extends ResourceState {
  readonly id: string
  readonly tools: ReadonlyMap<string, ReplayedTool>
  readonly fields: Readonly<Record<string, string>>
}

export interface AuthorityTables {
  readonly principals: readonly StoredPrincipal[]
  readonly resources: readonly StoredResource[]
  /** The kind of each attached CA, by digest. */
  readonly cas: ReadonlyMap<string, string>
  /** The scopes of the stops that have not ended, as JSON, by their ids. */
  readonly stops: ReadonlyMap<string, string>
  readonly bound: BoundValues
  readonly limits: StoredLimits
  readonly grants: ReadonlyMap<string, GrantState>
  readonly accounts: ReadonlyMap<string, AccountState>
  /** Texts that are not those of the digests next to them. Each a sentence. */
  readonly oddTexts: readonly string[]
}

interface TableComparison {
  /** Each a sentence. */
  readonly findings: readonly string[]
  /** Principals and resources that only rows of version 1 speak of: what those made is not in them. */
  readonly notCompared: number
}

/**
 * Compares tables with rows of changes, both of one instant; `at`, ms since the epoch, decides which grace
 * still counts. Does NOT compare what the gateway does not act by.
 */
function compareTables(replay: LedgerReplay, tables: AuthorityTables, at: number): TableComparison {
  const { before } = replay
  const principals = tables.principals.filter(
    ({ id, subject }) => replay.principals.has(subject) || !before.has(id),
  )
  const resources = tables.resources.filter(({ id }) => replay.resources.has(id) || !before.has(id))
  const old = [...tables.principals, ...tables.resources].length - principals.length - resources.length
  return {
    findings: [
      ...principals.flatMap((stored) => principalFindings(stored, replay.principals.get(stored.subject), at)),
      ...findMissing(
        'principal',
        replay.principals,
        principals.map(({ subject }) => subject),
        isGone,
      ),
      ...resources.flatMap((stored) => resourceFindings(stored, replay.resources.get(stored.id))),
      ...findMissing(
        'resource',
        replay.resources,
        resources.map(({ id }) => id),
        () => false,
      ),
      ...casFindings(replay, tables),
      ...stopFindings(replay, tables),
      ...replay.bound.findings(tables.bound, at),
      ...limitFindings(replay.metered.replay, tables.limits),
      ...replay.grants.findings(tables.grants, at),
      ...replay.accounts.findings(tables.accounts),
      ...tables.oddTexts,
    ],
    notCompared: old,
  }
}

/** The result of looking at the tables next to the rows. Both are sentences. */
export interface ComparedTables {
  readonly findings: readonly string[]
  readonly notes: readonly string[]
}

/**
 * Compares the tables with the rows, as far as both are there. `replay`: null after a bad row; `tables`: null
 * if they are of another version of the service.
 */
export function comparedTables(
  replay: LedgerReplay | null,
  tables: AuthorityTables | null,
  rows: number,
  at: number,
): ComparedTables {
  if (rows === 0 && tables && tables.principals.length > 0) return { findings: [EMPTIED], notes: [] }
  if (!replay) return { findings: [], notes: [] }
  if (!tables) return { findings: [], notes: [OF_ANOTHER_VERSION] }
  const { findings, notCompared: old } = compareTables(replay, tables, at)
  const notes =
    old === 0 ? [] : [`not compared: ${old} principals and resources from before rows of version 2`]
  return { findings, notes }
}

const EMPTIED = 'there are principals, but no row that made them'

const OF_ANOTHER_VERSION =
  'not compared: schema and tables, because the database is of another version of the service'

// The row of an erased user goes.
const isGone = ({ states }: ReplayedPrincipal): boolean => {
  const last = states.at(-1)
  return last !== undefined && !last.isActive && last.capabilities.length + last.thumbprints.length === 0
}

function findMissing<Known>(
  kind: string,
  replayed: ReadonlyMap<string, Known>,
  stored: readonly string[],
  mayBeGone: (known: Known) => boolean,
): readonly string[] {
  const there = new Set(stored)
  return [...replayed].flatMap(([name, known]) =>
    there.has(name) || mayBeGone(known) ? [] : [`${kind} ${name} is in the ledger, but not in the tables`],
  )
}

type NamedTexts = Readonly<Record<string, string>>

function differences(what: string, stored: NamedTexts, replayed: NamedTexts): readonly string[] {
  return Object.keys({ ...replayed, ...stored }).flatMap((name) => {
    const [has, says] = [stored[name] ?? 'nothing', replayed[name] ?? 'nothing']
    return has === says ? [] : [`${what}: the tables have ${name} ${has}, the ledger says ${says}`]
  })
}

function principalFindings(
  stored: StoredPrincipal,
  known: ReplayedPrincipal | undefined,
  at: number,
): readonly string[] {
  const last = known?.states.at(-1)
  if (!known || !last) return [`principal ${stored.id} is in the tables, but no row made it`]
  // Only those that rows do not leave open.
  const shown = (
    state: PrincipalState,
    { bindings, trustedCas }: Pick<ReplayedPrincipal, 'bindings' | 'trustedCas'>,
    waysIn: readonly string[],
  ): NamedTexts => ({
    capabilities: setOf(state.capabilities),
    is_active: String(state.isActive),
    authority_revision: String(state.revision),
    certificates: pinsAt(state.thumbprints, at),
    'DPoP keys': pinsAt(state.dpopJkts, at),
    spiffe_id: state.spiffeId ?? 'none',
    bindings: setOf([...bindings].map(([binding, id]) => `${binding} to ${id}`)),
    ...(known.trustedCas && { 'trusted CAs': setOf([...(trustedCas ?? [])]) }),
    ...(known.waysIn && { 'keys and identities': setOf(waysIn) }),
  })
  const { bindings, trustedCas, waysIn } = stored
  const has = shown(stored, { bindings: new Map(bindings), trustedCas: new Set(trustedCas) }, waysIn)
  return [
    ...differences(`principal ${stored.id}`, has, shown(last, known, known.waysIn ?? [])),
    ...bundleFindings(stored, known.bundle, at),
  ]
}

function bundleFindings(
  { id, bundle: stored }: Pick<StoredPrincipal, 'id' | 'bundle'>,
  known: OwnCas | null,
  at: number,
): readonly string[] {
  if (!stored || !known) return []
  const inForce = (previous: OwnCas['previous']): string =>
    setOf(
      (previous ?? []).flatMap(([all, until]) =>
        isInForce(until, at) ? [`${setOf(all)} until ${until}`] : [],
      ),
    )
  const shown = ({ digests, previous }: OwnCas): NamedTexts => ({
    'CAs of its own': setOf(digests),
    ...(known.previous && { 'CAs of bundles before': inForce(previous) }),
  })
  const of = (what: keyof typeof stored): readonly string[] =>
    differences(
      `principal ${id}${what === 'named' ? ', by the digests next to them' : ''}`,
      shown(stored[what]),
      shown(known),
    )
  return [...of('ofTexts'), ...of('named')]
}

function resourceFindings(stored: StoredResource, known: ReplayedResource | undefined): readonly string[] {
  const last = known?.states.at(-1)
  if (!known || !last) return [`resource ${stored.id} is in the tables, but no row made it`]
  // What no row has said is left out.
  const said = Object.keys(known.fields)
  const shown = (
    state: ResourceState,
    tools: ReadonlyMap<string, ReplayedTool>,
    fields: Readonly<Record<string, string>>,
  ): NamedTexts => ({
    name: state.name,
    required_capability: state.requiredCapability ?? 'none',
    tool_capabilities: setOf(Object.entries(state.toolCapabilities).map(([tool, own]) => `${tool}: ${own}`)),
    approval: state.approval ?? 'nobody',
    tool_approvals: setOf(
      Object.entries(state.toolApprovals ?? {}).map(([tool, by]) => `${tool}: ${by ?? 'nobody'}`),
    ),
    enabled: String(state.enabled),
    min_proof: state.minProof,
    tool_min_proof: setOf(Object.entries(state.toolMinProof).map(([tool, own]) => `${tool}: ${own}`)),
    revision: String(state.revision),
    ...Object.fromEntries(said.map((name) => [name, fields[name] ?? 'nothing'])),
    ...Object.fromEntries([...tools].map(([tool, found]) => [`tool ${tool}`, toolText(found)])),
  })
  return differences(
    `resource ${stored.id}`,
    shown(stored, stored.tools, stored.fields),
    shown(last, known.tools, known.fields),
  )
}

function casFindings({ cas: said }: LedgerReplay, { cas: found }: AuthorityTables): readonly string[] {
  const shown = (cas: ReadonlyMap<string, string>): NamedTexts => Object.fromEntries(cas)
  return differences('attached CAs', shown(found), shown(said))
}

function stopFindings({ stops }: LedgerReplay, { stops: found }: AuthorityTables): readonly string[] {
  const said = [...stops.scopes].map(([id, scope]) => [id, JSON.stringify(scope)])
  return differences('stops', Object.fromEntries(found), Object.fromEntries(said))
}

const setOf = (values: readonly string[]): string => `[${[...values].toSorted().join(', ')}]`

const pinsAt = (pins: readonly HonouredThumbprint[], at: number): string =>
  setOf(
    pins.flatMap(([name, until]) =>
      isInForce(until, at) ? [until === null ? name : `${name} until ${until}`] : [],
    ),
  )

// A pending definition counts if there is one; a tool that is gone is callable by no digest.
const toolText = ({ state, digest, pending }: ReplayedTool): string =>
  [state, digest ?? 'never approved', ...(state === 'quarantined' ? [`waiting ${pending}`] : [])].join(' ')
