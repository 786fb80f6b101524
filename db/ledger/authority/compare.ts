import type { LedgerReplay, ReplayedPrincipal, ReplayedResource, ReplayedTool } from './replay.ts'
import { type HonouredThumbprint, isInForce } from './rule.ts'
import type { PrincipalState, ResourceState } from './states.ts'

export interface StoredPrincipal extends PrincipalState {
  /** The name that rows of version 2 have for it: its id, or the pseudonym of a user. */
  readonly subject: string
  readonly id: string
  /** Resource ids by binding id. */
  readonly bindings: ReadonlyMap<string, string>
  /** The digests of the CAs that vouch for it; null if the tables are older. */
  readonly trustedCas: ReadonlySet<string> | null
}

export interface StoredResource extends ResourceState {
  readonly id: string
  readonly tools: ReadonlyMap<string, ReplayedTool>
}

export interface AuthorityTables {
  readonly principals: readonly StoredPrincipal[]
  readonly resources: readonly StoredResource[]
  /** The kind of each attached CA, by digest. */
  readonly cas: ReadonlyMap<string, string>
}

export interface TableComparison {
  /** Each a sentence. */
  readonly findings: readonly string[]
  /** Principals and resources that only rows of version 1 speak of: what those made is not in them. */
  readonly notCompared: number
}

/**
 * Compares tables with rows of changes, both of one instant; `at`, ms since the epoch, decides which grace
 * still counts. Does NOT compare what no decision rests on.
 */
export function compareTables(replay: LedgerReplay, tables: AuthorityTables, at: number): TableComparison {
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
    ],
    notCompared: old,
  }
}

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
  // Only those that neither side leaves open.
  const areCasSaid = stored.trustedCas !== null && known.trustedCas !== null
  const shown = (
    state: PrincipalState,
    { bindings, trustedCas }: Pick<StoredPrincipal, 'bindings' | 'trustedCas'>,
  ): NamedTexts => ({
    capabilities: setOf(state.capabilities),
    is_active: String(state.isActive),
    authority_revision: String(state.revision),
    certificates: pinsAt(state.thumbprints, at),
    'DPoP keys': pinsAt(state.dpopJkts, at),
    spiffe_id: state.spiffeId ?? 'none',
    bindings: setOf([...bindings].map(([binding, id]) => `${binding} to ${id}`)),
    ...(areCasSaid && { 'trusted CAs': setOf([...(trustedCas ?? [])]) }),
  })
  return differences(`principal ${stored.id}`, shown(stored, stored), shown(last, known))
}

function resourceFindings(stored: StoredResource, known: ReplayedResource | undefined): readonly string[] {
  const last = known?.states.at(-1)
  if (!known || !last) return [`resource ${stored.id} is in the tables, but no row made it`]
  const shown = (state: ResourceState, tools: ReadonlyMap<string, ReplayedTool>): NamedTexts => ({
    name: state.name,
    required_capability: state.requiredCapability ?? 'none',
    tool_capabilities: setOf(Object.entries(state.toolCapabilities).map(([tool, own]) => `${tool}: ${own}`)),
    enabled: String(state.enabled),
    revision: String(state.revision),
    ...Object.fromEntries([...tools].map(([tool, found]) => [`tool ${tool}`, toolText(found)])),
  })
  return differences(`resource ${stored.id}`, shown(stored, stored.tools), shown(last, known.tools))
}

function casFindings({ cas: said }: LedgerReplay, { cas: found }: AuthorityTables): readonly string[] {
  const shown = (cas: ReadonlyMap<string, string>): NamedTexts => Object.fromEntries(cas)
  return differences('attached CAs', shown(found), shown(said))
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
