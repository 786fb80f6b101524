import type { ApproverKind } from '../../../db/ledger/approvals/approval-rule.ts'
import { approverOf } from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { UnknownRecord } from '../../../db/support/json.ts'
import { TaskIncompleteError } from '../../../db/support/thread.ts'
import type { CallApproval } from '../../../plugins/audit/audit.ts'
import type { AccessToken, CallCommitments, Principal, ToolCall } from '../../../plugins/facts.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { callThreads } from '../aside/aside.ts'
import type { HeaderParam } from '../aside/messages.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { headerParamFault } from '../pinning/header-params.ts'
import { type PinnedDefinition, parsePinnedDefinition } from '../pinning/pinned-definition.ts'
import { paramsInvalid } from '../protocol/json-text.ts'
import type { McpMessage } from '../protocol/message.ts'
import { compileSmall, NOT_CHECKED, quickFault } from '../schema/check.ts'
import { isUsable, type McpRegistry, type PinnedTool } from '../state/registry.ts'
import { type RequestStates, type StateOwner, stateRefused } from '../state/request-state.ts'
import type { CallerSession } from '../state/sessions.ts'
import type { McpTarget } from './demand-now.ts'
import type { LargeParams } from './large-params.ts'

export interface GrantedMcpCall {
  readonly token: AccessToken | null
  readonly message: McpMessage
  readonly granted: CallPermit<McpTarget>
}

interface ToolCheckFacts extends Arrival, GrantedMcpCall {
  readonly toolCall: ToolCall
  readonly largeParams: LargeParams | null
}

/**
 * Checks a tool right before it is called: its definition is the approved one (`mcp_tool_quarantined`), the
 * arguments fit it (`mcp_params_invalid`), and so do the headers that repeat them (`mcp_header_mismatch`).
 * Waits only if the schema or the arguments are large, or the schema was not seen lately.
 */
export const mcpTool = (
  registry: Pick<McpRegistry, 'current' | 'tool'>,
): Plugin<ToolCheckFacts, { headerParams: readonly HeaderParam[] }> => ({
  name: 'mcp_tool',
  admit: (facts) => {
    const { target } = facts.granted
    if (target.kind === 'built_in') return checkToolCall(facts, BUILT_IN)
    if (target.kind !== 'tool') return { headerParams: [] }
    const { tool, resource } = target.pinned
    if (!isUsable(resource, tool)) throw quarantined(target.pinned)
    const definition = parsePinnedDefinition(tool)
    return definition instanceof Promise
      ? definition.then((known) => checkToolCall(facts, known))
      : checkToolCall(facts, definition)
  },
  still: async ({ granted: { target } }) => {
    if (target.kind !== 'tool') return {}
    const { resource: before, tool: called } = target.pinned
    const resource = await registry.current(before)
    const now = resource && (await registry.tool(resource, called.name))
    if (!now?.tool || !isUsable(now.resource, now.tool)) throw quarantined(target.pinned)
    return {}
  },
})

type CheckableDefinition = Pick<PinnedDefinition, 'digest' | 'text' | 'inputSchema' | 'headerParams'>

const BUILT_IN: CheckableDefinition = {
  digest: 'built-in http.get',
  text: JSON.stringify(HTTP_GET_TOOL),
  inputSchema: HTTP_GET_TOOL.inputSchema,
  headerParams: [],
}

function checkToolCall(facts: ToolCheckFacts, definition: CheckableDefinition) {
  const { message, toolCall, headers, largeParams } = facts
  const args = toolCall.arguments ?? {}
  const passed = (fault: string | null): Pick<CheckableDefinition, 'headerParams'> => {
    if (fault !== null) throw paramsInvalid(`arguments: ${fault}`)
    const { headerParams } = definition
    const mismatch = message.era === 'modern' ? headerParamFault(headerParams, headers, args) : null
    if (mismatch !== null) throw new Refusal('mcp_header_mismatch', { message: mismatch })
    return { headerParams }
  }
  const fault = largeParams === null ? quickFault(definition.digest, args) : undefined
  return fault === undefined ? faultOffThread(facts, definition, args).then(passed) : passed(fault)
}

async function faultOffThread(
  { granted, hangup, largeParams }: ToolCheckFacts,
  definition: CheckableDefinition,
  args: UnknownRecord,
): Promise<string | null> {
  const { digest, text } = definition
  const span = largeParams?.spans.get('arguments')
  const bytes = span && largeParams?.text.subarray(span.start, span.end)
  const asked = { digest, definition: text, args: bytes ?? JSON.stringify(args) }
  try {
    const { fault, small } = await callThreads.ask('judgeArguments', asked, {
      key: granted.principal.id,
      signal: hangup.signal,
    })
    if (small) compileSmall(digest, definition.inputSchema)
    return fault
  } catch (error) {
    if (error instanceof TaskIncompleteError) return NOT_CHECKED
    throw error
  }
}

const quarantined = ({ resource, tool }: PinnedTool): Refusal =>
  new Refusal('mcp_tool_quarantined', { detail: { tool: `${resource.name}.${tool.name}` } })

/** The approval that a state of ours names. */
export interface ApprovalState {
  /** `asked`: the caller was asked to have it approved; `continued`: it is the next round of an approved one. */
  readonly kind: 'asked' | 'continued'
  readonly id: string
}

interface CallState {
  /** The upstream's own; null if there is none. */
  readonly requestState: string | null
  readonly approvalState: ApprovalState | null
  /** True: the caller was asked to connect an account. */
  readonly consentAsked: boolean
}

const NO_STATE: CallState = { requestState: null, approvalState: null, consentAsked: false }

/** Opens a state, which must be this principal's for this call. Refuses with `mcp_params_invalid`. */
export function mcpState(states: RequestStates): Plugin<ToolCheckFacts, CallState> {
  return {
    name: 'mcp_state',
    admit: (facts) => {
      const { granted, message } = facts
      const { target } = granted
      const { requestState: sealed } = message.params
      const leaves = target.kind === 'tool' || target.kind === 'relay'
      if (!leaves || sealed === undefined || sealed === null) return NO_STATE
      // A state that is no text was never sealed, so it was given to nobody.
      if (typeof sealed !== 'string') throw stateRefused()
      const to = destinationOf(target)
      const owner = stateOwnerOf(granted.principal, message, to)
      if (isAccountState(states, sealed, owner, to)) return CONSENT_ASKED
      return (to.pinned && approvalStateIn(states, sealed, owner)) ?? openedState(states, sealed, owner)
    },
  }
}

const openedState = (states: RequestStates, sealed: string, owner: StateOwner): CallState => ({
  ...NO_STATE,
  requestState: states.open(sealed, owner),
})

const CONSENT_ASKED: CallState = { ...NO_STATE, consentAsked: true }

const isAccountState = (
  states: RequestStates,
  sealed: string,
  owner: StateOwner,
  { resource }: CallDestination,
): boolean =>
  resource.auth_type === 'oauth' && states.tryOpen(sealed, { ...owner, method: ACCOUNT_METHOD }) !== null

/** A state with an approval: its tag, the id, and of a call that goes on the upstream's own state. */
const APPROVED_STATE = /^.{43}(apr_[0-9a-f]{24})(?:\.|$)/s

function approvalStateIn(states: RequestStates, sealed: string, owner: StateOwner): CallState | null {
  const [, id] = APPROVED_STATE.exec(sealed) ?? []
  if (id === undefined) return null
  if (states.tryOpen(sealed, { ...owner, method: APPROVAL_METHOD }) !== null)
    return { ...NO_STATE, approvalState: { kind: 'asked', id } }
  const state = states.tryOpen(sealed, { ...owner, approval: id })
  if (state === null) return null
  return { ...NO_STATE, requestState: state.slice(id.length + 1), approvalState: { kind: 'continued', id } }
}

// No methods of MCP: a state of ours is none of an upstream.
const APPROVAL_METHOD = 'approval'
const ACCOUNT_METHOD = 'account'

export const accountStateOwner = (
  principal: Principal,
  message: McpMessage,
  to: CallDestination,
): StateOwner => ({ ...stateOwnerOf(principal, message, to), method: ACCOUNT_METHOD })

export const approvalStateOwner = (
  principal: Principal,
  message: McpMessage,
  pinned: PinnedTool,
): StateOwner => ({
  ...stateOwnerOf(principal, message, destinationOf({ kind: 'tool', pinned })),
  method: APPROVAL_METHOD,
})

/** Seals an upstream's state for the next round of a call, which goes by the same approval. */
export function sealState(
  states: Pick<RequestStates, 'seal'>,
  state: string,
  owner: StateOwner,
  approval: CallApproval | null,
): string {
  if (approval === null) return states.seal(state, owner)
  return states.seal(`${approval.id}.${state}`, { ...owner, approval: approval.id })
}

export interface AccountFacts extends Pick<GrantedMcpCall, 'message' | 'granted'> {
  readonly session: CallerSession | null
  readonly consentAsked: boolean
}

interface AccountFact<Account> {
  /** The caller's account at the one server that it reaches; null: that takes none. */
  readonly account: Account | null
}

/**
 * Finds the caller's own account, if the server is called by accounts (docs/accounts.md). Asks nothing of any
 * other. An answer to a question goes by the account of the call that was asked.
 */
export const mcpAccount = <Account extends { readonly id: string }>(
  find: (facts: AccountFacts, to: CallDestination) => Promise<Account>,
): Plugin<AccountFacts, AccountFact<Account>> => ({
  name: 'account',
  admit: (facts) => {
    const to = accountedTarget(facts)
    return to === null ? { account: null } : find(facts, to).then((account) => ({ account }))
  },
  still: async (facts) => {
    const to = accountedTarget(facts)
    if (to !== null && (await find(facts, to)).id !== facts.account?.id) throw new Refusal('consent_required')
    return {}
  },
})

export function accountedTarget({
  granted: { target },
}: Pick<AccountFacts, 'granted'>): CallDestination | null {
  if (target.kind !== 'tool' && target.kind !== 'relay') return null
  const to = destinationOf(target)
  return to.resource.auth_type === 'oauth' ? to : null
}

export interface ApprovalFacts extends ToolCheckFacts {
  readonly commitments: CallCommitments
  readonly session: CallerSession | null
  readonly approvalState: ApprovalState | null
  readonly consentAsked: boolean
}

interface ApprovalFact {
  readonly approval: CallApproval | null
}

const NO_APPROVAL: ApprovalFact = { approval: null }

/**
 * Asks last if somebody must approve the call, and has (docs/approvals.md). Asks nothing of a tool without a
 * rule.
 */
export const mcpApproval = (
  judge: (facts: ApprovalFacts, pinned: PinnedTool, by: ApproverKind) => Promise<CallApproval>,
): Plugin<ApprovalFacts, ApprovalFact> => ({
  name: 'approval',
  admit: (facts) => {
    const { target } = facts.granted
    if (target.kind !== 'tool') return NO_APPROVAL
    const { resource, tool } = target.pinned
    const by = approverOf(resource, tool.name)
    if (by !== null) return judge(facts, target.pinned, by).then((approval) => ({ approval }))
    if (facts.approvalState !== null) throw stateRefused()
    return NO_APPROVAL
  },
})

/** Says of a call that nobody makes whether somebody would have to approve it. */
export const mcpApprovalForeseen: Plugin<Pick<GrantedMcpCall, 'granted'>, object> = {
  name: 'approval',
  admit: ({ granted: { target } }) => {
    const isHeld =
      target.kind === 'tool' && approverOf(target.pinned.resource, target.pinned.tool.name) !== null
    if (isHeld) throw new Refusal('approval_required')
    return {}
  },
}

export interface CallDestination {
  readonly resource: McpResource
  /** The upstream's own name of the tool or prompt, if the caller's is another one. */
  readonly name: string | null
  readonly pinned: PinnedTool | null
}

export function destinationOf(target: Extract<McpTarget, { kind: 'tool' | 'relay' }>): CallDestination {
  if (target.kind === 'relay') return { resource: target.resource, name: target.name, pinned: null }
  const { pinned } = target
  return { resource: pinned.resource, name: pinned.tool.name, pinned }
}

export function stateOwnerOf(principal: Principal, message: McpMessage, to: CallDestination): StateOwner {
  const { resource_id: resourceId } = to.resource
  return { principal, resourceId, method: message.method, name: callSubject(message, to) ?? '' }
}

export function callSubject({ params: { name, uri } }: McpMessage, to: CallDestination): string | null {
  const own = to.name ?? name ?? uri
  return typeof own === 'string' ? own : null
}
