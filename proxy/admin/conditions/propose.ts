import { createHmac, randomBytes } from 'node:crypto'
import { activeHolders, oneHolderAtMost } from '../../../db/operators/owners.ts'
import { countOpenProposals, insertProposal, type Proposal } from '../../../db/operators/proposals.ts'
import { type RowAssertion, timestamp } from '../../../db/support/statement.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { AnyOperation, InputSchemas, ParsedInput, RawInput } from '../operation/operation.ts'
import { checkIfMatch, etagOf } from '../operation/operation.ts'
import { rehearseProposedChange } from './rehearsed.ts'
import type { ResolvableChange } from './resolve.ts'

/** The time in which a proposal must be confirmed. ms. */
const OPEN_MS = 24 * 3_600_000
/** The most open proposals, and the most of one operator. */
const [MOST, MOST_OWN] = [1_000, 100]
/** Bytes of a proposal's input. */
const MAX_INPUT = 65_536

/** The outcome of an operation that waits for a second operator. */
export interface ProposedChange {
  readonly proposed: Pick<Proposal, 'proposal_id' | 'expires_at' | 'rehearsal_id'>
}

/** Tells if a change waits for a second operator. If not, that is so as long as `standing` holds. */
export type SecondOperatorCheck =
  | { readonly waits: true }
  | { readonly waits: false; readonly standing: readonly RowAssertion[] }

/** Tells whether a change waits for a second operator: another active operator holds one of `needed`. */
export async function checkSecondOperator(
  { database }: AdminContext,
  needed: readonly AdminCapability[],
): Promise<SecondOperatorCheck> {
  const holders = await Promise.all(needed.map((capability) => activeHolders(database, capability)))
  if (holders.some((list) => list.length >= 2)) return { waits: true }
  // Many changes may stand in line while the second one comes.
  return { waits: false, standing: needed.map((capability) => oneHolderAtMost(database, capability)) }
}

interface ProposableChange extends ResolvableChange {
  readonly operation: AnyOperation
  readonly given: RawInput<InputSchemas>
  readonly input: ParsedInput<InputSchemas>
  readonly demanded: readonly AdminCapability[]
  /** The rehearsal that it names; null: none. */
  readonly rehearsal: string | null
}

/**
 * Stores a change for a second operator, with its rehearsal and one row. Refuses with `not_found` and
 * `precondition_failed` as the change itself would be, and with `proposals_full`.
 */
export async function propose(
  context: AdminContext,
  change: ProposableChange,
  caller: AdminCaller,
): Promise<ProposedChange> {
  const { operation, given, input, demanded, rehearsal } = change
  const { name, action, object } = operation
  const { database } = context
  const { actor, at } = caller
  const found = (await object?.(context, input)) ?? null
  if (found) checkIfMatch(given.ifMatch, found)
  const { ifMatch: _, ifRehearsed: __, ...rest } = given
  const text = JSON.stringify(rest)
  if (Buffer.byteLength(text) > MAX_INPUT)
    throw new Refusal('proposals_full', { message: 'A proposal may hold at most 64 KiB.' })
  const content: ProposalContent = {
    operation: name,
    action,
    capabilities: demanded,
    input: text,
    etag: found && etagOf(found),
    rehearsal_id: rehearsal ?? (await rehearseProposedChange(context, change, caller)),
    proposed_by: actor.id,
    via: actor.via,
    created_at: timestamp(at),
    expires_at: timestamp(at + OPEN_MS),
  }
  const id = proposalId(context, randomBytes(12).toString('hex'), content)
  const proposal = {
    ...content,
    proposal_id: id,
    status: 'open',
    decided_by: null,
    decided_at: null,
  } as const
  // One after the other: each counts those before it.
  await context.oneAtATime.run('proposals', async () => {
    const { all, own } = await countOpenProposals(database, actor.id)
    if (all >= MOST || own >= MOST_OWN) throw new Refusal('proposals_full')
    await commitChange(context, caller, {
      action: 'proposal.created',
      detail: proposalDetail(proposal),
      statements: [insertProposal(database, proposal)],
    })
  })
  return { proposed: proposal }
}

type ProposalContent = Omit<Proposal, 'proposal_id' | 'status' | 'decided_by' | 'decided_at'>

/**
 * Makes the id of a proposal of what it is for, so that the row that names it binds that: whoever can write to
 * the table has no key for the id of another content.
 */
function proposalId(
  { subjectKeys }: Pick<AdminContext, 'subjectKeys'>,
  random: string,
  content: ProposalContent,
): string {
  const { operation, action, capabilities, input, etag, rehearsal_id, proposed_by, via } = content
  const { created_at, expires_at } = content
  const bound = [operation, action, capabilities, input, etag, rehearsal_id, proposed_by, via]
  const text = JSON.stringify([random, ...bound, created_at, expires_at])
  const mac = createHmac('sha256', subjectKeys.derived('proposals')).update(text).digest('hex')
  return `prop_${random}${mac.slice(0, 32)}`
}

/** True if a stored proposal is what it was when its id was given. */
export const isAsProposed = (context: Pick<AdminContext, 'subjectKeys'>, proposal: Proposal): boolean =>
  proposalId(context, proposal.proposal_id.slice(5, 29), proposal) === proposal.proposal_id

/** Detail of each row about a proposal. Nothing of its input: a row outlives a person who is erased. */
export const proposalDetail = ({
  proposal_id,
  action,
  capabilities,
  proposed_by,
  rehearsal_id: rehearsal,
}: Proposal) => ({
  proposal: proposal_id,
  ...(rehearsal !== null && { rehearsal }),
  change: action,
  capabilities,
  proposed_by,
})
