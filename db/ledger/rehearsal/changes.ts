import type { StopScope } from '../../stops/stop.ts'
import type { ReplayedPrincipal, ReplayedResource } from '../authority/replay.ts'
import type { ConfigurationState, PrincipalState, ResourceState } from '../authority/states.ts'
import type { LimitChanges } from './limit-changes.ts'

export interface HypotheticalChanges {
  /** Keyed by the principal's name in the ledger. */
  readonly principals: ReadonlyMap<string, Partial<Pick<PrincipalState, 'capabilities' | 'isActive'>>>
  /** Keyed by the resource's id. */
  readonly resources: ReadonlyMap<
    string,
    Partial<
      Pick<
        ResourceState,
        | 'requiredCapability'
        | 'toolCapabilities'
        | 'enabled'
        | 'approval'
        | 'toolApprovals'
        | 'minProof'
        | 'toolMinProof'
      >
    >
  >
  /** True if it binds a principal to a resource: by {@link bindingName}. */
  readonly bindings: ReadonlyMap<string, boolean>
  readonly settings: Partial<Pick<ConfigurationState, 'mode' | 'noDowngrade' | 'enforceToolsCall' | 'checks'>>
  /** Stops that would be in force. Absent: none. */
  readonly stops?: readonly StopScope[]
  /** Absent: no limit changes. They decide nothing of authority. */
  readonly limits?: LimitChanges
}

export const bindingName = (subject: string, resourceId: string): string => `${subject} ${resourceId}`

export const hasNoChanges = ({
  principals,
  resources,
  bindings,
  settings,
  stops = [],
}: HypotheticalChanges): boolean =>
  principals.size + resources.size + bindings.size + Object.keys(settings).length + stops.length === 0

export const changesConcern = (
  { principals, resources, bindings, settings }: HypotheticalChanges,
  subject: string,
  resourceId: string | null,
): boolean =>
  principals.has(subject) ||
  Object.keys(settings).length > 0 ||
  (resourceId !== null && (resources.has(resourceId) || bindings.has(bindingName(subject, resourceId))))

/** The id of a binding that a change makes. No row has one of it. */
const HYPOTHETICAL_BINDING_ID = 'laid over'

export function bindingsWith(
  { bindings }: HypotheticalChanges,
  subject: string,
  { bindings: bound }: ReplayedPrincipal,
  resourceId: string | null,
): ReadonlyMap<string, string> {
  const wanted = resourceId === null ? undefined : bindings.get(bindingName(subject, resourceId))
  if (wanted === undefined || resourceId === null) return bound
  const others = [...bound].filter(([, to]) => to !== resourceId)
  if (!wanted) return new Map(others)
  // One that is bound stays so by its own binding.
  return others.length < bound.size ? bound : new Map([...bound, [HYPOTHETICAL_BINDING_ID, resourceId]])
}

export function resourceWith(
  { resources }: HypotheticalChanges,
  id: string,
  known: ReplayedResource,
): ReplayedResource {
  const [changed, last] = [resources.get(id), known.states.at(-1)]
  return changed && last ? { ...known, states: [{ ...last, ...changed }] } : known
}
