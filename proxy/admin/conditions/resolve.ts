import canonicalize from 'canonicalize'
import { bindingName, type HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import type { ChangedLimit } from '../../../db/ledger/rehearsal/limit-changes.ts'
import { findLimit } from '../../../db/limits/store.ts'
import { findMcpResource, listMcpResources, type McpResource } from '../../../db/mcp/resources.ts'
import { findPrincipalOf, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { StopScope } from '../../../db/stops/stop.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { RehearsalChange } from '../operation/changes.ts'
import type { AdminContext } from '../operation/context.ts'
import type { LimitChangeInput } from '../operation/limit-terms.ts'
import { etagOf, type RevisionedObject } from '../operation/operation.ts'
import { recordedScope } from '../operation/stop-scope.ts'
import { limitChangeOf, limitChangesOf } from './limits.ts'

type SettingsChange = Extract<RehearsalChange, { settings: unknown }>

/** A change of a principal, a binding or a resource. */
type AuthorityChange = Exclude<
  RehearsalChange,
  { settings: unknown } | { stop: unknown } | { limit: unknown }
>

export interface ResolvedChanges {
  readonly laid: HypotheticalChanges
  /** The principals that all of them are about, by their names in the ledger; null: not only principals. */
  readonly principals: readonly string[] | null
  /** True: nobody may do more by them. */
  readonly takesOnly: boolean
  /** The changes in one form: two that say the same are the same text. */
  readonly text: string
  /** The state of each principal and resource that they are about. */
  readonly etags: Readonly<Record<string, string>>
}

export interface ResolvableChange {
  /**
   * Finds the subjects of the change, once. Null if no rehearsal can describe it. Rejects as {@link
   * resolveChanges} does.
   */
  readonly resolve: () => Promise<ResolvedChanges | null>
  /** Has the next call of `resolve` read again: others may have changed the subjects meanwhile. */
  readonly forget: () => void
}

/** The changes whose subjects are read in one turn of the loop. */
const AT_ONCE = 100

const TYPES = ['agent', 'user', 'workload'] as const

/**
 * Finds the subjects of changes. Refuses with `body_unprocessable` each that is about nobody, or has the
 * subject of another one.
 */
export async function resolveChanges(
  context: AdminContext,
  changes: readonly RehearsalChange[],
): Promise<ResolvedChanges> {
  const resolving = new ChangeResolver()
  for (const [index, change] of changes.entries()) {
    if (index % AT_ONCE === AT_ONCE - 1) await eventLoopTurn()
    await resolving.add(context, change, `changes[${index}]`)
  }
  return resolving.resolved(context)
}

class ChangeResolver {
  readonly #principals = new Map<string, { capabilities?: readonly string[]; isActive?: false }>()
  readonly #resources = new Map<
    string,
    HypotheticalChanges['resources'] extends ReadonlyMap<string, infer S> ? S : never
  >()
  readonly #bindings = new Map<string, boolean>()
  /** Principals whose calls alone are touched by changes of principals and bindings. */
  readonly #subjects = new Set<string>()
  #settings: HypotheticalChanges['settings'] = {}
  readonly #stops: StopScope[] = []
  readonly #limits: ChangedLimit[] = []
  #takesOnly = true
  readonly #said = new Map<string, string>()
  readonly #texts: string[] = []
  readonly #etags: Record<string, string> = {}
  readonly #faults: { field: string; message: string }[] = []

  async add(context: AdminContext, change: RehearsalChange, field: string): Promise<void> {
    if ('settings' in change) return this.#setting(change.settings, field)
    if ('stop' in change) return await this.#stop(context, change.stop, field)
    if ('limit' in change) return await this.#limit(context, change.limit, field)
    const principal =
      'principal' in change ? await findPrincipalOf(context.database, TYPES, change.principal) : null
    const resource = 'resource' in change ? await resourceOf(context, change.resource) : null
    if (principal === undefined) this.#fault(`${field}.principal`, 'is not a principal of this service')
    if (resource === undefined) this.#fault(`${field}.resource`, 'is not an MCP server of this service')
    if (principal === undefined || resource === undefined) return
    if (principal) this.#about(principal.principal_id, principal)
    if (resource) this.#about(resource.resource_id, resource)
    this.#lay(change, principal, resource, field)
  }

  #lay(
    change: AuthorityChange,
    principal: PrincipalRecord | null,
    resource: McpResource | null,
    field: string,
  ): void {
    const subject = principal?.principal_ref ?? ''
    if (!takesAway(change, principal)) this.#takesOnly = false
    if (principal) this.#subjects.add(subject)
    const state = this.#principals.get(subject) ?? {}
    if ('capabilities' in change) {
      const text = { principal: principal?.principal_id, capabilities: change.capabilities.toSorted() }
      if (!this.#once(`${subject} capabilities`, text, field)) return
      this.#principals.set(subject, { ...state, capabilities: change.capabilities })
    } else if ('is_active' in change) {
      if (!this.#once(`${subject} is_active`, { ...change, principal: principal?.principal_id }, field))
        return
      this.#principals.set(subject, { ...state, isActive: false })
    } else if ('bound' in change) {
      const id = resource?.resource_id ?? ''
      const text = { principal: principal?.principal_id, resource: id, bound: change.bound }
      if (!this.#once(bindingName(subject, id), text, field)) return
      this.#bindings.set(bindingName(subject, id), change.bound)
    } else {
      const id = resource?.resource_id ?? ''
      const { required_capability: required, tool_capabilities: own, enabled } = change
      const { min_proof: minProof, tool_min_proof: proofs } = change
      if (!this.#once(id, { ...change, resource: id }, field)) return
      this.#resources.set(id, {
        ...(required !== undefined && { requiredCapability: required }),
        ...(own !== undefined && { toolCapabilities: own ?? {} }),
        ...(enabled !== undefined && { enabled }),
        ...('approval' in change && { approval: change.approval }),
        ...('tool_approvals' in change && { toolApprovals: change.tool_approvals ?? {} }),
        ...(minProof !== undefined && { minProof }),
        ...(proofs !== undefined && { toolMinProof: proofs ?? {} }),
      })
    }
  }

  #setting(settings: SettingsChange['settings'], field: string): void {
    this.#takesOnly = false
    if (!this.#once('settings', { settings }, field)) return
    const {
      egress_dpop_mode: mode,
      no_downgrade: noDowngrade,
      enforce_tools_call: enforced,
      checks,
    } = settings
    this.#settings = {
      ...(mode !== undefined && { mode }),
      ...(noDowngrade !== undefined && { noDowngrade }),
      ...(enforced !== undefined && { enforceToolsCall: enforced }),
      ...(checks !== undefined && { checks }),
    }
  }

  async #stop(context: AdminContext, scope: StopScope, field: string): Promise<void> {
    const recorded = await recordedScope(context, scope)
    if ('problem' in recorded) this.#fault(`${field}.stop`, recorded.problem)
    else if (this.#once(`stop ${JSON.stringify(recorded.scope)}`, { stop: scope }, field))
      this.#stops.push(recorded.scope)
  }

  async #limit(context: AdminContext, change: LimitChangeInput, field: string): Promise<void> {
    const found = 'id' in change ? await findLimit(context.database, change.id) : null
    if ('id' in change && found === null) {
      this.#fault(`${field}.limit.id`, 'is not a limit of this service')
      return
    }
    const { text, takesAway, ...laid } = limitChangeOf(change, found, Date.now())
    if (!this.#once(`limit ${laid.id ?? laid.name}`, { limit: text }, field)) return
    if (found) this.#about(found.id, found)
    if (!takesAway) this.#takesOnly = false
    this.#limits.push(laid)
  }

  #once(about: string, change: object, field: string): boolean {
    const before = this.#said.get(about)
    if (before !== undefined) {
      this.#fault(field, `changes the same thing as ${before}`)
      return false
    }
    this.#said.set(about, field)
    this.#texts.push(canonicalize(change) ?? '')
    return true
  }

  #about(id: string, record: RevisionedObject): void {
    this.#etags[id] = etagOf(record)
  }

  #fault(field: string, message: string): void {
    this.#faults.push({ field, message })
  }

  async resolved(context: AdminContext): Promise<ResolvedChanges> {
    if (this.#faults.length > 0) throw unprocessableBody(this.#faults)
    const hasOthers =
      this.#resources.size + this.#stops.length + this.#limits.length + Object.keys(this.#settings).length > 0
    const limits = this.#limits.length > 0 ? await limitChangesOf(context, this.#limits) : null
    return {
      laid: {
        principals: this.#principals,
        resources: this.#resources,
        bindings: this.#bindings,
        settings: this.#settings,
        ...(this.#stops.length > 0 && { stops: this.#stops }),
        ...(limits && { limits }),
      },
      takesOnly: this.#takesOnly,
      principals: hasOthers || this.#subjects.size === 0 ? null : [...this.#subjects],
      text: `[${this.#texts.toSorted().join(',')}]`,
      etags: this.#etags,
    }
  }
}

/** A server's or tool's new demand may be less for one principal than for another. */
function takesAway(
  change: AuthorityChange,
  principal: Pick<PrincipalRecord, 'capabilities'> | null,
): boolean {
  if ('capabilities' in change)
    return change.capabilities.every((one) => principal?.capabilities.includes(one))
  if ('is_active' in change) return true
  if ('bound' in change) return !change.bound
  const { resource: _, enabled, ...others } = change
  return enabled === false && Object.keys(others).length === 0
}

async function resourceOf({ database }: AdminContext, idOrName: string): Promise<McpResource | undefined> {
  const byId = await findMcpResource(database, idOrName)
  return byId ?? (await listMcpResources(database)).find(({ name }) => name === idOrName)
}
