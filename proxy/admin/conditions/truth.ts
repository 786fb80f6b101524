import type { Database } from '../../../db/database.ts'
import {
  BUILT_IN_TOOL,
  demandedOfBuiltIn,
  demandedOfTool,
  missingCapability,
} from '../../../db/ledger/authority/rule.ts'
import { bindingName, type HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import { findPrincipalOf, listPrincipals } from '../../../db/principals/read.ts'
import { compileGlob } from '../../../db/support/glob.ts'
import { eventLoopTurn, runInSlices, type WorkSteps } from '../../../plugins/turns.ts'
import type { ExpectationPrincipal, UnrehearsedChange } from '../operation/changes.ts'
import type { ExpectationModes } from '../operation/context.ts'
import { type ExpectationSentence, isGlob } from './sentence.ts'

const TYPES = ['agent', 'user', 'workload'] as const

export interface ExpectationTool {
  readonly resourceId: string
  readonly resource: string
  readonly tool: string
  /** The name that callers use. */
  readonly name: string
  readonly enabled: boolean
  readonly approved: boolean
  readonly required_capability: string | null
  readonly tool_capabilities: Readonly<Record<string, string>>
}

/** All that sentences are judged by: as the database has it. */
export interface ExpectationAuthority {
  readonly principals: readonly ExpectationPrincipal[]
  readonly tools: readonly ExpectationTool[]
  /** `<principal's id> <resource's id>`. */
  readonly bound: ReadonlySet<string>
}

export interface AuthorityEffect {
  readonly laid: HypotheticalChanges | null
  readonly gives: UnrehearsedChange | null
}

const boundName = (principal: string, resourceId: string): string => `${principal} ${resourceId}`

export async function readAuthority(
  database: Pick<Database, 'kysely'>,
  sentences: readonly ExpectationSentence[],
): Promise<ExpectationAuthority> {
  const { kysely } = database
  const [tools, bindings] = await Promise.all([
    kysely
      .selectFrom('mcp_tools as t')
      .innerJoin('mcp_resources as r', 'r.resource_id', 't.resource_id')
      .select(['r.resource_id', 'r.name as resource', 'r.enabled', 'r.required_capability'])
      .select(['r.tool_capabilities', 't.name as tool', 't.state'])
      .where('t.state', '<>', 'gone')
      .execute(),
    kysely.selectFrom('mcp_bindings').select(['principal_id', 'resource_id']).execute(),
  ])
  return {
    principals: await principalsOf(database as Database, sentences),
    tools: tools.map(({ resource_id: resourceId, resource, tool, enabled, state, ...demands }) => ({
      ...{ resourceId, resource, tool, name: `${resource}.${tool}` },
      enabled: enabled === 1,
      approved: state === 'approved',
      required_capability: demands.required_capability,
      // Proven by db/mcp/resources.ts, which alone writes this column.
      tool_capabilities: JSON.parse(demands.tool_capabilities ?? '{}') as Record<string, string>,
    })),
    bound: new Set(bindings.map(({ principal_id: id, resource_id: to }) => boundName(id, to))),
  }
}

async function principalsOf(
  database: Database,
  sentences: readonly ExpectationSentence[],
): Promise<readonly ExpectationPrincipal[]> {
  const named = new Set(sentences.map(({ who }) => who))
  if ([...named].some(isGlob)) {
    const tests = [...named].map(compileGlob)
    const all = await Promise.all(TYPES.map((type) => listPrincipals(database, type, {}, eventLoopTurn)))
    return all
      .flatMap(({ items }) => items)
      .filter(({ principal_id: id }) => tests.some((matches) => matches(id)))
  }
  const found = await Promise.all([...named].map((id) => findPrincipalOf(database, TYPES, id)))
  return found.flatMap((one) => one ?? [])
}

const CHAT = ['llm.chat']
const NOTHING: AuthorityEffect = { laid: null, gives: null }

/**
 * Judges sentences by the rule of the gate, as authority is or as a change would make it
 * (docs/rehearsal.md#expectations). About nobody, a `may` is false and a `may not` is true. In slices, so
 * that others go on.
 */
export const evaluateSentences = (
  sentences: readonly ExpectationSentence[],
  authority: ExpectationAuthority,
  modes: ExpectationModes,
  change: AuthorityEffect = NOTHING,
): Promise<readonly boolean[]> =>
  runInSlices(evaluateTruths(sentences, applyEffect(authority, change), modesWith(modes, change)))

const modesWith = (modes: ExpectationModes, { laid }: AuthorityEffect): ExpectationModes => ({
  ...modes,
  enforceToolsCall: laid?.settings.enforceToolsCall ?? modes.enforceToolsCall,
})

/** Between two chances for others. */
const PAIRS = 512

function* evaluateTruths(
  sentences: readonly ExpectationSentence[],
  authority: ExpectationAuthority,
  modes: ExpectationModes,
): WorkSteps<readonly boolean[]> {
  const truths: boolean[] = []
  for (const sentence of sentences) truths.push(yield* isTrue(sentence, authority, modes))
  return truths
}

function* isTrue(
  { who, may, at }: ExpectationSentence,
  authority: ExpectationAuthority,
  modes: ExpectationModes,
): WorkSteps<boolean> {
  const isMeant = compileGlob(who)
  const people = authority.principals.filter(({ principal_id: id }) => isMeant(id))
  if (at.kind === 'model') {
    const pass = people.filter((one) => holdsCapabilities(one, CHAT))
    return may ? people.length > 0 && pass.length === people.length : pass.length === 0
  }
  const isAbout = compileGlob(at.glob)
  const tools = authority.tools.filter(({ name }) => isAbout(name))
  const builtIn = modes.httpGet && isAbout(BUILT_IN_TOOL)
  let [asked, passed] = [0, 0]
  for (const one of people) {
    if (builtIn) {
      asked += 1
      if (holdsCapabilities(one, demandedOfBuiltIn(modes.enforceToolsCall))) passed += 1
    }
    for (const tool of tools) {
      asked += 1
      if (mayCall(one, tool, authority, modes)) passed += 1
      if (asked % PAIRS === 0) yield
    }
    if (may ? passed < asked : passed > 0) return false
  }
  return !may || asked > 0
}

function mayCall(
  one: ExpectationPrincipal,
  tool: ExpectationTool,
  { bound }: ExpectationAuthority,
  { enforceToolsCall }: ExpectationModes,
): boolean {
  if (!tool.enabled || !tool.approved || !bound.has(boundName(one.principal_id, tool.resourceId)))
    return false
  const { required_capability: all, tool_capabilities: own } = tool
  return holdsCapabilities(one, demandedOfTool(tool.tool, all, own, enforceToolsCall))
}

const holdsCapabilities = (
  { is_active: active, capabilities }: ExpectationPrincipal,
  demanded: readonly string[],
): boolean => active && missingCapability(demanded, capabilities, null) === null

function applyEffect(
  authority: ExpectationAuthority,
  { laid, gives }: AuthorityEffect,
): ExpectationAuthority {
  if (gives && 'principal' in gives) return withPrincipal(authority, gives.principal)
  if (gives) return withApproved(authority, gives)
  if (!laid) return authority
  const { principals, resources, bindings } = laid
  const bound = new Set(authority.bound)
  for (const { principal_id: id, principal_ref: ref } of authority.principals)
    for (const resourceId of new Set(authority.tools.map((tool) => tool.resourceId))) {
      const wanted = bindings.get(bindingName(ref, resourceId))
      if (wanted === true) bound.add(boundName(id, resourceId))
      if (wanted === false) bound.delete(boundName(id, resourceId))
    }
  return {
    bound: bindings.size === 0 ? authority.bound : bound,
    principals: authority.principals.map((one) => {
      const { capabilities = one.capabilities, isActive = one.is_active } =
        principals.get(one.principal_ref) ?? {}
      return { ...one, capabilities, is_active: isActive }
    }),
    tools: authority.tools.map((tool) => {
      const made = resources.get(tool.resourceId)
      if (!made) return tool
      return {
        ...tool,
        enabled: made.enabled ?? tool.enabled,
        required_capability:
          made.requiredCapability === undefined ? tool.required_capability : made.requiredCapability,
        tool_capabilities: made.toolCapabilities ?? tool.tool_capabilities,
      }
    }),
  }
}

function withPrincipal(
  authority: ExpectationAuthority,
  given: Pick<ExpectationPrincipal, 'principal_id'> & Partial<ExpectationPrincipal>,
): ExpectationAuthority {
  const { principal_id: id } = given
  const known = authority.principals.find((one) => one.principal_id === id)
  const made: ExpectationPrincipal = {
    ...{ principal_ref: id, capabilities: [], is_active: true },
    ...known,
    ...given,
  }
  return { ...authority, principals: [...authority.principals.filter((one) => one !== known), made] }
}

const withApproved = (
  authority: ExpectationAuthority,
  { resourceId, tool }: { readonly resourceId: string; readonly tool: string },
): ExpectationAuthority => ({
  ...authority,
  tools: authority.tools.map((one) =>
    one.resourceId === resourceId && one.tool === tool ? { ...one, approved: true } : one,
  ),
})
