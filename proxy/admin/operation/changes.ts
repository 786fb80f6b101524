import { z } from 'zod'
import type { ApproverKind, ToolApprovals } from '../../../db/ledger/approvals/approval-rule.ts'
import type { MinProof } from '../../../db/ledger/authority/rule.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import type { StopScope } from '../../../db/stops/stop.ts'
import { type LimitChangeInput, limitChange } from './limit-terms.ts'
import {
  approverKind,
  callerCapabilities,
  capabilityField,
  minProof,
  toolApprovals,
  toolCapabilities,
  toolMinProof,
} from './shapes.ts'
import { stopScope } from './stop-scope.ts'

const id = z.string().min(1).max(256)

const digest = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in lower-case hex')

const check = z.strictObject({
  name: z.string().min(1).max(64),
  digest: digest.nullable().meta({ description: 'The digest of its code; null if that is elsewhere.' }),
  options: digest.meta({ description: 'The digest of its options.' }),
  shadow: z.boolean(),
})

const SETTINGS = z.strictObject({
  egress_dpop_mode: z.enum(['off', 'optional', 'required']).exactOptional(),
  no_downgrade: z.boolean().exactOptional(),
  enforce_tools_call: z.boolean().exactOptional(),
  checks: z
    .array(check)
    .max(64)
    .exactOptional()
    .meta({ description: 'All your own checks, in order, as in `config.loaded`.' }),
})

/** Every member that a change may have. {@link change} says which of them go together. */
const members = z.strictObject({
  principal: id.exactOptional().meta({ description: 'The id of an agent, a user or a workload.' }),
  capabilities: callerCapabilities
    .exactOptional()
    .meta({ description: 'The whole new set of the principal.' }),
  is_active: z
    .literal(false, 'can only be false: calls that would be allowed again were never made')
    .exactOptional(),
  resource: id.exactOptional().meta({ description: 'The id or the name of an MCP server.' }),
  bound: z.boolean().exactOptional().meta({ description: 'Whether the principal may reach the server.' }),
  required_capability: capabilityField.nullable().exactOptional(),
  tool_capabilities: toolCapabilities.nullable().exactOptional(),
  enabled: z.boolean().exactOptional(),
  approval: approverKind.exactOptional(),
  tool_approvals: toolApprovals.nullable().exactOptional(),
  min_proof: minProof.exactOptional(),
  tool_min_proof: toolMinProof.nullable().exactOptional(),
  settings: SETTINGS.exactOptional(),
  stop: stopScope.exactOptional(),
  limit: limitChange.exactOptional().meta({
    description:
      'The body of a new limit; or of a change, with `id`; or `{id, remove: true}`; or `{id, override}`, null: it ends.',
  }),
})

type ChangeMembers = z.output<typeof members>

/** One change of authority (docs/rehearsal.md): exactly one of its forms. */
export type RehearsalChange =
  | { readonly principal: string; readonly capabilities: readonly string[] }
  | { readonly principal: string; readonly is_active: false }
  | { readonly principal: string; readonly resource: string; readonly bound: boolean }
  | ({ readonly resource: string } & RequirementChanges)
  | { readonly settings: z.output<typeof SETTINGS> }
  | { readonly stop: StopScope }
  | { readonly limit: LimitChangeInput }

interface RequirementChanges {
  readonly required_capability?: string | null
  readonly tool_capabilities?: Readonly<Record<string, string>> | null
  readonly enabled?: boolean
  readonly approval?: ApproverKind | null
  readonly tool_approvals?: ToolApprovals | null
  readonly min_proof?: MinProof
  readonly tool_min_proof?: Readonly<Record<string, MinProof>> | null
}

const REQUIREMENTS = [
  ...['required_capability', 'tool_capabilities', 'enabled'],
  ...['approval', 'tool_approvals', 'min_proof', 'tool_min_proof'],
]

const FORMS: readonly { readonly all: readonly string[]; readonly any?: readonly string[] }[] = [
  { all: ['principal', 'capabilities'] },
  { all: ['principal', 'is_active'] },
  { all: ['principal', 'resource', 'bound'] },
  { all: ['resource'], any: REQUIREMENTS },
  { all: ['settings'] },
  { all: ['stop'] },
  { all: ['limit'] },
]

const isOfForm = (names: readonly string[], { all, any = [] }: (typeof FORMS)[number]): boolean =>
  all.every((name) => names.includes(name)) &&
  names.every((name) => all.includes(name) || any.includes(name)) &&
  (any.length === 0 || names.some((name) => any.includes(name)))

const RULE =
  'must be one of {principal, capabilities}, {principal, is_active: false}, {principal, resource, bound}, ' +
  `{resource, ${REQUIREMENTS.join(', ')}} with at least one of the last seven, {settings}, {stop}, and {limit}`

const change = members.transform((value: ChangeMembers, context): RehearsalChange => {
  if (FORMS.some((form) => isOfForm(Object.keys(value), form))) return value as RehearsalChange
  context.addIssue({ code: 'custom', message: RULE })
  return z.NEVER
})

/** The changes of one rehearsal. None: the recorded decisions are only judged once more. */
export const rehearsalChanges = z.array(change).max(100, 'must be at most 100 changes')

/** The caller, as far as a sentence may be about it. */
export type ExpectationPrincipal = Pick<
  PrincipalRecord,
  'principal_id' | 'principal_ref' | 'capabilities' | 'is_active'
>

export type UnrehearsedChange =
  | { readonly principal: Pick<ExpectationPrincipal, 'principal_id'> & Partial<ExpectationPrincipal> }
  | { readonly resourceId: string; readonly tool: string }
