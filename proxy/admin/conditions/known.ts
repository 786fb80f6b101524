import type { Database } from '../../../db/database.ts'
import type { HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import { findPrincipalOf, listPrincipals } from '../../../db/principals/read.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { ExpectationPrincipal, UnrehearsedChange } from '../operation/changes.ts'
import { type ExpectationSentence, globMatcher, isGlob } from './sentence.ts'

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

export const boundName = (principal: string, resourceId: string): string => `${principal} ${resourceId}`

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
    const tests = [...named].map(globMatcher)
    const all = await Promise.all(TYPES.map((type) => listPrincipals(database, type, {}, eventLoopTurn)))
    return all
      .flatMap(({ items }) => items)
      .filter(({ principal_id: id }) => tests.some((matches) => matches(id)))
  }
  const found = await Promise.all([...named].map((id) => findPrincipalOf(database, TYPES, id)))
  return found.flatMap((one) => one ?? [])
}
