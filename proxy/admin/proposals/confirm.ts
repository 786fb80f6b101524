import { decideProposal, findProposal, type Proposal } from '../../../db/operators/proposals.ts'
import { readSecret, secretUnchanged } from '../../../db/operators/secret.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import type { ProposalStatus } from '../../../db/schema.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import {
  type ActingOperator,
  type AuthenticationMethod,
  unstoredOperator,
} from '../../../plugins/operators/actor.ts'
import { conflict, notFound, Refusal } from '../../../plugins/refusal.ts'
import type { ForcedChangeDetail } from '../conditions/expected.ts'
import { isAsProposed, proposalDetail } from '../conditions/propose.ts'
import { changeEntry, commitChange, isOvertaken } from '../operation/change.ts'
import type { AdminCaller, AdminContext, ChangeAuthorship, ChangeConfirmation } from '../operation/context.ts'
import {
  type AnyOperation,
  etagOf,
  type InputSchemas,
  inputOf,
  type OperationResult,
  perform,
  type RawInput,
  requireCapability,
} from '../operation/operation.ts'
import { keptExpectations, resolvedChange } from '../pipeline.ts'

/** Finds the open proposal of an id. Refuses with `not_found`, or `conflict` if it is decided. */
export async function openProposal(context: AdminContext, id: string, at: number): Promise<Proposal> {
  const proposal = await findProposal(context.database, id)
  if (!proposal) throw notFound('There is no proposal with this id. GET /v1/admin/proposals lists them.')
  if (proposal.status !== 'open')
    throw conflict(`This proposal is already ${proposal.status}. To make the change, propose it again.`)
  // The task that says so in the ledger may not have come by yet.
  if (at >= Date.parse(proposal.expires_at))
    throw conflict('This proposal has expired. Propose the change again.')
  return proposal
}

/**
 * Makes the change of a proposal, for its proposer, in one transaction in which the proposal is open and both
 * operators hold its demands. Refuses with `own_proposal`, `capability_missing`, and `precondition_failed` if
 * object or proposer has changed: the proposal is `void` then.
 */
export async function confirmProposal(
  context: AdminContext,
  bound: AnyOperation,
  proposal: Proposal,
  caller: AdminCaller,
): Promise<OperationResult<unknown>> {
  const { capabilities, proposed_by: proposedBy, etag } = proposal
  if (!isAsProposed(context, proposal)) {
    await endProposal(context, caller, proposal, 'void')
    throw new Refusal('precondition_failed', {
      message: 'This is not what was proposed: its table was edited. Propose the change again.',
    })
  }
  if (proposedBy === caller.actor.id || caller.actor.via === 'secret') throw new Refusal('own_proposal')
  for (const capability of capabilities) requireCapability(caller, capability)
  const given: RawInput<InputSchemas> = {
    ...JSON.parse(proposal.input),
    ...(etag !== null && { ifMatch: etag }),
  }
  const proposer = await proposerOf(context, proposal)
  if (!proposer || !(await isAsItWas(context, bound, given, etag))) {
    await endProposal(context, caller, proposal, 'void')
    throw new Refusal('precondition_failed', {
      message: 'The state that this proposal was made for has changed. Propose the change again.',
    })
  }
  const forced = await forcedChange(context, bound, given)
  const rowDetail = forced ? { forced } : {}
  const confirmation = confirmationOf(context, proposal, caller, rowDetail)
  const actor: ActingOperator = { ...proposer, standing: [...proposer.standing, ...caller.actor.standing] }
  try {
    const result = await perform(bound, context, given, { ...caller, actor, rowDetail, confirmation })
    // There was nothing to change.
    if (!confirmation.stored) await endProposal(context, caller, proposal, 'confirmed')
    return result
  } catch (error) {
    if (!isOvertaken(error)) throw error
    // Somebody else has decided it meanwhile, or changed the object.
    await endProposal(context, caller, proposal, 'void')
    throw error
  }
}

async function forcedChange(
  context: AdminContext,
  operation: AnyOperation,
  given: RawInput<InputSchemas>,
): Promise<ForcedChangeDetail | null> {
  const request = { operation, given, input: inputOf(operation.takes, given), isDryRun: false }
  const resolvable = await resolvedChange(context).admit(request)
  return (await keptExpectations(context).admit({ ...request, ...resolvable })).forced
}

/** The proposer as it is now; null if it may not make the change any more. */
async function proposerOf(
  { database, hasEnvironmentSecret }: AdminContext,
  { proposed_by: id, via, capabilities }: Proposal,
): Promise<ActingOperator | null> {
  if (via === 'secret') {
    const { hash, disabled } = await readSecret(database)
    const opens = !disabled && (hash !== '' || hasEnvironmentSecret)
    return opens ? unstoredOperator(id, 'secret', [secretUnchanged(database)(hash)]).actor : null
  }
  const found = await findPrincipal(database, 'operator', id)
  if (!found?.is_active || !capabilities.every((one) => found.capabilities.includes(one))) return null
  const standing = [authorityUnchanged(database)('operator', id, found.authority_revision)]
  // Proven by propose: the door that its actor came by.
  return {
    id,
    type: 'operator',
    via: via as AuthenticationMethod,
    standing,
    capabilities: found.capabilities,
  }
}

async function isAsItWas(
  context: AdminContext,
  { object, takes }: AnyOperation,
  given: RawInput<InputSchemas>,
  etag: string | null,
): Promise<boolean> {
  if (!object) return true
  try {
    return etagOf(await object(context, inputOf(takes, given))) === etag
  } catch (error) {
    if (error instanceof Refusal && error.reason === 'not_found') return false
    throw error
  }
}

/** Ends a proposal without its change, with one row. Refuses with `conflict` if it is decided. */
export async function endProposal(
  context: AdminContext,
  author: ChangeAuthorship,
  proposal: Proposal,
  status: Exclude<ProposalStatus, 'open'>,
): Promise<void> {
  const { at, actor } = author
  const { proposal_id: id } = proposal
  try {
    await commitChange(context, author, {
      action: `proposal.${status}`,
      detail: proposalDetail(proposal),
      statements: [decideProposal(context.database, { id, status, by: actor.id, at })],
    })
  } catch (error) {
    if (isOvertaken(error)) await openProposal(context, id, at)
    throw error
  }
}

const confirmationOf = (
  { database, configDigest }: AdminContext,
  proposal: Proposal,
  caller: AdminCaller,
  rowDetail: JsonObject,
): ChangeConfirmation => {
  const { proposal_id: id, rehearsal_id: rehearsal } = proposal
  const { at, actor } = caller
  return {
    detail: { proposal: id, confirmed_by: actor.id, ...(rehearsal !== null && { rehearsal }) },
    statement: decideProposal(database, { id, status: 'confirmed', by: actor.id, at }),
    entry: changeEntry(
      {
        action: 'proposal.confirmed',
        detail: { ...proposalDetail(proposal), via: actor.via, ...rowDetail },
      },
      caller,
      configDigest,
    ),
    stored: false,
  }
}
