import { z } from 'zod'
import type { CandidateReport } from '../../../db/ledger/rehearsal/candidate.ts'
import type { CandidateSet } from '../../../db/principals/pins.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { clearCandidateSet, setCandidate, setCapabilities } from '../../../db/principals/write.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import { groupsShape, pileViews } from '../conditions/run.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import type { RehearsalPurpose } from '../operation/ledger-places.ts'
import { checkIfMatch, emptyOperation, etagOf, operation, readOperation } from '../operation/operation.ts'
import { callerCapabilities, capabilityToken, idParams, instant } from '../operation/shapes.ts'
import { changeAuthority, withLatestPrincipal } from '../principals/authority.ts'
import { PRINCIPAL_SHAPES, principalByParams, principalOf, principalResult } from '../principals/view.ts'

const set = { capabilities: z.array(capabilityToken), since: instant }

const count = z.int().min(0)

const watched = z.strictObject({
  ...set,
  decisions: count.meta({ description: 'The calls that it has judged.' }),
  would_refuse: groupsShape,
  would_allow: groupsShape.meta({
    description: 'Calls that the gate refused; nothing after the gate was asked.',
  }),
})

/**
 * PUT …/{id}/candidate: a set that is judged alongside the real one on every call, and decides nothing
 * (docs/rehearsal.md#candidates). It counts from nothing.
 */
export const putCandidate = (kind: PrincipalKind) =>
  operation({
    name: `set${kind.noun}Candidate`,
    demands: 'admin.grant',
    action: `${kind.type}.candidate_set`,
    // It grants nothing.
    harmless: true,
    summary: `Sets a second set of capabilities for the ${kind.type}: it judges each call alongside the real one, and decides nothing.`,
    takes: { params: idParams, body: z.strictObject({ capabilities: callerCapabilities }) },
    output: z.strictObject(set),
    conditional: true,
    revised: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    example: { capabilities: ['llm.chat'] },
    run: async (context, { params: { id }, body, ifMatch }, caller) => {
      await changeCandidate(context, kind, caller, { id, ifMatch, capabilities: body.capabilities })
      const { candidate, revision } = await principalOf(context, kind, id)
      return { value: shownSet(candidate ?? none()), revision }
    },
  })

export const showCandidateSet = (kind: PrincipalKind) =>
  readOperation({
    name: `show${kind.noun}CandidateSet`,
    summary: `Shows the candidate set of the ${kind.type}.`,
    takes: { params: idParams },
    output: z.strictObject(set).nullable(),
    revised: true,
    reasons: ['not_found'],
    run: async (context, { params: { id } }) => {
      const { candidate, revision } = await principalOf(context, kind, id)
      return { value: candidate && shownSet(candidate), revision }
    },
  })

export const getCandidate = (kind: PrincipalKind) =>
  readOperation({
    name: `get${kind.noun}Candidate`,
    summary: `Shows the candidate set of the ${kind.type}, and what it would have changed so far.`,
    takes: { params: idParams },
    output: watched,
    revised: true,
    reasons: ['not_found', 'overloaded'],
    run: async (context, { params: { id } }, caller) => {
      const record = await principalOf(context, kind, id)
      const candidate = record.candidate ?? none()
      const { decisions, wouldRefuse, wouldAllow } = await watch(context, caller, record, candidate, 'usage')
      const [refused = [], allowed = []] = await pileViews(context.database, [wouldRefuse, wouldAllow])
      const value = { ...shownSet(candidate), decisions, would_refuse: refused, would_allow: allowed }
      return { value, revision: record.revision }
    },
  })

function demandSeen(ifMatch: string | undefined): void {
  // One tag: a list would match whichever set comes to be the candidate meanwhile.
  if (ifMatch !== undefined && !/[*,]/.test(ifMatch)) return
  const message = 'Send the ETag that you got with the candidate set as If-Match.'
  throw new Refusal('precondition_failed', { message })
}

export const deleteCandidate = (kind: PrincipalKind) =>
  emptyOperation({
    name: `remove${kind.noun}Candidate`,
    demands: 'admin.grant',
    action: `${kind.type}.candidate_removed`,
    harmless: true,
    summary: `Removes the candidate set of the ${kind.type}.`,
    takes: { params: idParams },
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      await changeCandidate(context, kind, caller, { id, ifMatch, capabilities: null })
    },
  })

/**
 * POST …/{id}/candidate/promote: makes the candidate set the real one (spec §4.4). Its one row says what was
 * observed of it. Refuses with `precondition_failed` if either set has changed, and without an `If-Match`,
 * since the request names no set.
 */
export const promoteCandidate = (kind: PrincipalKind) =>
  operation({
    name: `promote${kind.noun}Candidate`,
    demands: 'admin.grant',
    action: `${kind.type}.capabilities_patched`,
    object: async (context, input) => {
      const found = await principalByParams(kind)(context, input)
      demandSeen(input.ifMatch)
      return found
    },
    summary: `Makes the candidate set of the ${kind.type} the real one.`,
    takes: { params: idParams },
    output: PRINCIPAL_SHAPES[kind.type],
    conditional: true,
    revised: true,
    rehearses: async (context, { params: { id } }) => {
      const { candidate } = await principalOf(context, kind, id)
      return candidate ? [{ principal: id, capabilities: candidate.capabilities }] : []
    },
    reasons: ['not_found', 'precondition_failed', 'overloaded', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      const { type } = kind
      const record = await principalOf(context, kind, id)
      checkIfMatch(ifMatch, record)
      const candidate = record.candidate ?? none()
      demandSeen(ifMatch)
      const observed = await watch(context, caller, record, candidate, 'change')
      const { capabilities: held } = candidate
      // What was observed is of these two sets.
      const found = { id, ifMatch: etagOf(record) }
      await changeAuthority(context, kind, caller, found, ({ revision }, { capabilities: previous }) => ({
        action: `${type}.capabilities_patched`,
        next: { capabilities: held },
        detail: { previous, candidate: inRow(candidate, observed) },
        statements: [
          setCapabilities(context.database, {
            type,
            id,
            revision,
            capabilities: held,
            ...changeAuthor(caller),
          }),
          clearCandidateSet(context.database, { type, id, at: caller.at }),
        ],
      }))
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })

const shownSet = ({ capabilities: held, since }: CandidateSet) => ({ capabilities: [...held], since })

const inRow = ({ since }: CandidateSet, { decisions, wouldRefuse, wouldAllow }: CandidateReport) => ({
  since,
  decisions,
  would_refuse: wouldRefuse.decisions,
  would_allow: wouldAllow.decisions,
})

function none(): never {
  throw notFound('This principal has no candidate set. Put one first.')
}

/** Reads what a set has judged, on a thread: the record is long. */
function watch(
  { rehearsalPlaces, walkCalls }: AdminContext,
  { actor, at, hangup }: AdminCaller,
  { principal_ref: principal }: PrincipalRecord,
  { since }: CandidateSet,
  purpose: RehearsalPurpose,
): Promise<CandidateReport> {
  const wanted = {
    since,
    until: timestamp(Math.max(at, Date.parse(since)) + 1),
    principals: [principal],
    callsAlone: true,
  }
  const task = { kind: 'candidate', principal, since, wanted } as const
  return rehearsalPlaces.run(purpose, actor.id, () => walkCalls(task, hangup.signal))
}

/** Sets the candidate set, or removes it with null, with one row. */
function changeCandidate(
  context: AdminContext,
  kind: PrincipalKind,
  caller: AdminCaller,
  {
    capabilities: held,
    ...found
  }: Parameters<typeof withLatestPrincipal>[2] & { readonly capabilities: readonly string[] | null },
): Promise<void> {
  const { type } = kind
  return withLatestPrincipal(
    context,
    kind,
    found,
    async ({ principal_id: id, principal_ref: subject, revision, candidate }) => {
      if (held === null && !candidate) none()
      // It names the set: no two have the same.
      const at = Math.max(caller.at, candidate ? Date.parse(candidate.since) + 1 : 0)
      const change = { type, id, revision, capabilities: held, ...changeAuthor(caller), at }
      await commitChange(context, caller, {
        action: `${type}.candidate_${held === null ? 'removed' : 'set'}`,
        detail: {
          subject,
          ...(held !== null && { candidate: held, since: timestamp(at) }),
          previous: candidate?.capabilities ?? null,
        },
        statements: [setCandidate(context.database, change)],
      })
    },
  )
}
