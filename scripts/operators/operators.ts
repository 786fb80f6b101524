import { nearestName } from '../../plugins/operator-files/nearest-name.ts'
import { ADMIN_CAPABILITIES, isOperatorSet, OPERATOR_SETS } from '../../plugins/operators/capabilities.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { capabilitiesIn, type OptionValues } from '../command.ts'

export interface OperatorView {
  readonly principal_id: string
  readonly operator_name: string
  readonly capabilities: readonly string[]
  readonly is_active: boolean
  readonly cert_not_after: string | null
  readonly dpop_jkt: string | null
  readonly last_seen_at: string | null
  readonly created_by: string
  readonly created_at: string
  readonly changed_by: string
}

export const OPERATORS_PATH = '/v1/admin/operators'

/** Lists the operators, newest first, a thousand at most. */
export async function fetchOperators(call: AdminCall): Promise<readonly OperatorView[]> {
  const { operators: list } = expectStatus(await call('GET', `${OPERATORS_PATH}?limit=1000`), 200)
  if (!Array.isArray(list)) throw new Error('the gateway answered with something other than a list')
  // The admin API's own shape (docs/protocol.md#principals), of the version that runs.
  return list as readonly OperatorView[]
}

/** Finds the operator of a name, or of an id. Throws one sentence if there is none. */
export async function operatorNamed(call: AdminCall, name: string): Promise<OperatorView> {
  const all = await fetchOperators(call)
  const found = all.find((one) => one.operator_name === name || one.principal_id === name)
  const known = found ?? (await findUnlisted(call, name, all))
  if (known) return known
  const near = nearestName(
    name,
    all.map((one) => one.operator_name),
  )
  const hint = near === undefined ? 'there is none yet' : `did you mean ${near}?`
  throw new Error(`there is no operator with the name ${JSON.stringify(name)}: ${hint}`)
}

/** Asks for an operator by its id: the list, which is for showing, may end before it. */
async function findUnlisted(
  call: AdminCall,
  name: string,
  [any]: readonly OperatorView[],
): Promise<OperatorView | null> {
  const id = name.includes('::') ? name : any?.principal_id.replace(/[^:]+$/, name)
  if (id === undefined) return null
  const { status, body } = await call('GET', `${OPERATORS_PATH}/${encodeURIComponent(id)}`)
  // The admin API's own shape, as above.
  return status === 200 ? (body as OperatorView) : null
}

export const SET_OPTIONS = {
  role: {
    type: 'string',
    value: 'ROLE',
    description: `${Object.keys(OPERATOR_SETS).join(', ')}: shorthand for what it holds`,
  },
  caps: { type: 'string', value: 'A,B', description: `instead of a role: ${ADMIN_CAPABILITIES.join(',')}` },
} as const

/** The set that `--role` or `--caps` says. Throws one sentence if neither does, or both. */
export function requestedSet({ role, caps }: OptionValues<typeof SET_OPTIONS>): readonly string[] {
  if (role !== undefined && caps !== undefined) throw new Error('use --role or --caps, not both')
  if (caps !== undefined) return capabilitiesIn(caps)
  if (role === undefined) throw new Error('give its capabilities: --role viewer, or --caps admin.read')
  if (isOperatorSet(role)) return OPERATOR_SETS[role]
  throw new Error(
    `--role must be one of ${Object.keys(OPERATOR_SETS).join(', ')}, got ${JSON.stringify(role)}; or use --caps ${ADMIN_CAPABILITIES.slice(0, 2).join(',')}`,
  )
}
