import { z } from 'zod'
import type { IssuingAuthority } from '../../../certs/authority/authority.ts'
import {
  digestsOf,
  endRotation,
  type RotationPhase,
  type StoredAuthority,
  swapRotation,
} from '../../../certs/authority/rotation.ts'
import { firstCertificateOf } from '../../../certs/x509/x509.ts'
import { type CertificateHolder, certificateHolders, settleIssuers } from '../../../db/principals/issuers.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { conflict, Refusal } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { resolveChanges } from '../conditions/resolve.ts'
import { previewShape, runRehearsal, windowOf } from '../conditions/run.ts'
import { commitChanges, retryIfOvertaken } from '../operation/change.ts'
import type { RehearsalChange } from '../operation/changes.ts'
import type { AdminCaller, AdminContext, StoredCas } from '../operation/context.ts'
import { capabilityToEnroll, OPERATOR } from '../operation/kinds.ts'
import {
  checkIfMatch,
  type OperationResult,
  operation,
  type RevisionedObject,
  requireCapability,
} from '../operation/operation.ts'
import { dryRun, instant, sha256 } from '../operation/shapes.ts'
import { assertOwnerKeepsCertificate } from '../operators/owners.ts'
import { endedCertificates } from './ended.ts'

const SCOPES = ['root', 'intermediate'] as const
/** The principals that are named at once. */
const MAX_NAMED = 50

const ca = z
  .strictObject({
    root_sha256: sha256,
    root_not_after: instant,
    intermediate_sha256: sha256,
    intermediate_not_after: instant,
  })
  .meta({ id: 'OwnCa' })

const count = z.int().min(0)

const holders = z
  .strictObject({
    active: count.meta({ description: 'Active principals whose current certificate is of the old CA.' }),
    in_grace: count.meta({
      description: 'Principals that have a newer certificate; the old one is in its grace.',
    }),
    inactive: count,
    principals: z
      .array(
        z.strictObject({
          principal_type: z.enum(['agent', 'user', 'workload', 'operator']),
          principal_id: z.string(),
          name: z.string(),
          last_seen_at: instant.nullable(),
        }),
      )
      .meta({ description: `The active ones, at most ${MAX_NAMED}.` }),
  })
  .meta({ id: 'CaHolders' })

const rotation = z
  .strictObject({
    phase: z.enum(['none', 'prepared', 'issuing']),
    scope: z.enum(SCOPES).nullable(),
    issuing: ca.meta({ description: 'The CA that certificates come from now.' }),
    other: ca.nullable().meta({ description: 'The CA that comes next, or the one that is being replaced.' }),
    prepared_at: instant.nullable(),
    issued_at: instant.nullable(),
    holders: holders
      .nullable()
      .meta({ description: 'Whoever holds a certificate of the CA to be replaced.' }),
    finished: z.array(
      z.strictObject({ root_sha256: sha256, intermediate_sha256: sha256, finished_at: instant }),
    ),
  })
  .meta({ id: 'CaRotation' })

const previewedRotation = z.strictObject({ ...rotation.shape, rehearsal: previewShape.exactOptional() })

/** The CAs of the service, as operations show them. */
export type CaRotationView = OperationResult<z.output<typeof rotation>>['value']

export const showRotation = operation({
  name: 'getCaRotation',
  demands: 'admin.read',
  action: 'admin.read',
  summary:
    "Shows the organisation's CA, the one that replaces it, and who still holds certificates of the old one.",
  takes: {},
  output: rotation,
  revised: true,
  reasons: [],
  run: (context, _input, { at }) => rotationResult(context, at),
})

const STEP = {
  demands: 'admin.settings',
  twoPersonKind: 'trust',
  object: (context: AdminContext): Promise<RevisionedObject> => revisionedCas(context),
  output: previewedRotation,
  conditional: true,
  revised: true,
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable'],
} as const

export const prepareCa = operation({
  ...STEP,
  name: 'prepareCa',
  action: 'ca.rotation_prepared',
  summary: 'Makes the next CA. It is trusted from now on, alongside the one that issues.',
  takes: { body: z.strictObject({ scope: z.enum(SCOPES).default('root') }) },
  example: { scope: 'root' },
  run: async (context, { body: { scope }, ifMatch }, caller) => {
    const { database, authority, organisation, trustDomain } = context
    const { at } = caller
    const before = await readCas(context, ifMatch)
    if (before.stored.rotation)
      throw conflict('A CA is being replaced already. Finish that first, or cancel it.')
    const next = await context.rotation
      .prepare(before, { organisation, trustDomain, scope, at })
      .catch(refuseUnpreparable)
    await step(context, caller, before, next, {
      action: 'ca.rotation_prepared',
      detail: { scope, ca: otherDigests(next), replaces: digestsOf(before.stored) },
      statements: await settleIssuers(database, authority.digest),
    })
    return rotationResult(context, at)
  },
})

function refuseUnpreparable(error: unknown): never {
  if (error instanceof Refusal) throw error
  const message = error instanceof Error ? error.message : String(error)
  throw conflict(`The next CA cannot be made: ${message}.`, error)
}

export const issueByNextCa = operation({
  ...STEP,
  name: 'issueByNextCa',
  action: 'ca.rotation_issued',
  summary:
    'Has the next CA issue. Certificates of the one before are still accepted, and are renewed at once.',
  takes: {},
  run: async (context, { ifMatch }, caller) => {
    const before = await readCas(context, ifMatch)
    if (before.stored.rotation?.phase !== 'prepared')
      throw conflict('No CA is prepared. Prepare the next one first.')
    const next = swapRotation(before.stored, caller.at)
    await step(context, caller, before, next, {
      action: 'ca.rotation_issued',
      detail: { ca: digestsOf(next), replaces: digestsOf(before.stored) },
    })
    return rotationResult(context, caller.at)
  },
})

/** Active principals whose current certificate ends with a CA. */
const lockedOut = (of: readonly CertificateHolder[]): readonly CertificateHolder[] =>
  of.filter(({ is_active: isActive, is_current: isCurrent }) => isActive && isCurrent)

/** The operators among them. */
const lockedOutOperators = (of: readonly CertificateHolder[]): ReadonlySet<string> =>
  new Set(
    lockedOut(of)
      .filter(({ principal_type: type }) => type === OPERATOR.type)
      .map(({ principal_id: id }) => id),
  )

/** Returns the demand of an end by force that takes an operator's certificate: an owner's alone. */
async function requiredForEnd(
  context: AdminContext,
  { forced }: { readonly forced?: string | undefined },
  phase: RotationPhase,
): Promise<readonly AdminCapability[]> {
  if (forced === undefined) return []
  const found = await holdersOf(context, await readCas(context), phase, 0)
  return lockedOutOperators(found).size > 0 ? [capabilityToEnroll(OPERATOR)] : []
}

/** The same as changes that a rehearsal knows. */
const asDeactivations = (of: readonly CertificateHolder[]): readonly RehearsalChange[] =>
  lockedOut(of)
    .filter(({ principal_type: type }) => type !== OPERATOR.type)
    .map(({ principal_id: principal }) => ({ principal, is_active: false }))

/**
 * POST /v1/admin/ca/rotation/finish: ends the CA that is being replaced, and all certificates of it. Refuses
 * with `ca_relied_on`, which names them, while active principals hold one and no newer one, unless it is forced.
 */
export const finishRotation = operation({
  ...endingIn('issuing'),
  name: 'finishCaRotation',
  action: 'ca.rotation_finished',
  summary: 'Ends the CA before, with all certificates of it. Its keys are destroyed.',
  run: (context, { ifMatch, forced }, caller) =>
    endOtherCa(context, caller, { phase: 'issuing', action: 'ca.rotation_finished', ifMatch, forced }),
})

export const cancelRotation = operation({
  ...endingIn('prepared'),
  name: 'cancelCaRotation',
  action: 'ca.rotation_cancelled',
  summary:
    'Takes the last step of a replacement back: the CA before issues again, or the next one is dropped.',
  run: async (context, { ifMatch, forced }, caller) => {
    const before = await readCas(context, ifMatch)
    if (before.stored.rotation?.phase !== 'issuing')
      return endOtherCa(context, caller, {
        ...{ phase: 'prepared', action: 'ca.rotation_cancelled', ifMatch, forced },
      })
    const next = swapRotation(before.stored, caller.at)
    await step(context, caller, before, next, {
      action: 'ca.rotation_cancelled',
      detail: { phase: 'issuing', ca: otherDigests(next), issues: digestsOf(next) },
    })
    return rotationResult(context, caller.at)
  },
})

/** The parts of a step that ends a CA with its certificates. */
function endingIn(phase: RotationPhase) {
  type EndInput = { readonly ifMatch?: string | undefined; readonly forced?: string | undefined }
  return {
    ...STEP,
    takes: { query: z.object({ dry_run: dryRun }) },
    reasons: [...STEP.reasons, 'ca_relied_on', 'last_owner'] as const,
    alsoDemands: (context: AdminContext, input: EndInput) => requiredForEnd(context, input, phase),
    rehearses: (context: AdminContext, input: EndInput) => rehearsedEnd(context, input, phase),
    preview: (context: AdminContext, { ifMatch }: EndInput, caller: AdminCaller) =>
      previewEnd(context, ifMatch, caller, phase),
  }
}

interface CaEnd {
  /** The phase that the CA beside the issuing one ends in. */
  readonly phase: RotationPhase
  readonly action: string
  readonly ifMatch: string | undefined
  readonly forced: string | undefined
}

/** Ends the CA beside the issuing one: with its certificates, the states of their holders, and a row for each. */
function endOtherCa(context: AdminContext, caller: AdminCaller, { phase, action, ifMatch, forced }: CaEnd) {
  const read = async () => {
    const before = await readCas(context, ifMatch)
    checkPhase(before.stored, phase)
    const found = await holdersOf(context, before, phase, caller.at)
    const out = lockedOut(found)
    if (out.length > 0 && forced === undefined) throw stillHeld(out)
    const operators = lockedOutOperators(found)
    // One may have come back since its caller was asked.
    if (operators.size > 0) requireCapability(caller, capabilityToEnroll(OPERATOR))
    return { before, found, out, operators }
  }
  return retryIfOvertaken(read, async ({ before, found, out, operators }) => {
    const { at } = caller
    const ended = await endedCertificates(context, caller, otherQuery(before.stored, phase, at), found)
    await step(context, caller, before, endRotation(before.stored, at), {
      action,
      detail: {
        ...(action === 'ca.rotation_cancelled' && { phase }),
        ...{ ca: otherDigests(before.stored), ended: found.length, locked_out: out.length },
        ...(forced !== undefined && { force_reason: forced }),
      },
      ...ended,
      assertions: await assertOwnerKeepsCertificate(context, at, operators),
    })
    return rotationResult(context, at)
  })
}

function checkPhase({ rotation: open }: StoredAuthority, phase: RotationPhase): void {
  if (open?.phase === phase) return
  if (phase === 'prepared') throw conflict('No CA is being replaced: there is nothing to cancel.')
  throw conflict(
    open
      ? 'The next CA does not issue yet: nothing can be finished.'
      : 'No CA is being replaced. Prepare the next one first.',
  )
}

const stillHeld = (out: readonly CertificateHolder[]): Refusal =>
  new Refusal('ca_relied_on', {
    message:
      'Active principals still hold certificates of this CA. Have them renewed first, or end them with force=true and a reason.',
    detail: {
      principals: out.slice(0, MAX_NAMED).map(({ principal_id: id }) => id),
      principals_total: out.length,
    },
  })

/** A forced end takes away what the holders' deactivation would. Any other locks nobody out. */
async function rehearsedEnd(
  context: AdminContext,
  { forced }: { readonly forced?: string | undefined },
  phase: RotationPhase,
): Promise<readonly RehearsalChange[]> {
  if (forced === undefined) return []
  return asDeactivations(await holdersOf(context, await readCas(context), phase, 0))
}

/** Says who would be locked out, and which of their calls of the last 30 days would have been refused. */
async function previewEnd(
  context: AdminContext,
  ifMatch: string | undefined,
  caller: AdminCaller,
  phase: RotationPhase,
) {
  const before = await readCas(context, ifMatch)
  // To take the CA before back locks nobody out.
  if (phase === 'issuing' || !before.stored.rotation) checkPhase(before.stored, phase)
  const changes = asDeactivations(await holdersOf(context, before, phase, caller.at))
  const { value, revision } = await rotationResult(context, caller.at)
  if (changes.length === 0) return { value, revision }
  const resolved = await resolveChanges(context, changes)
  const rehearsal = await runRehearsal(context, caller, resolved, windowOf(caller.at))
  return { value: { ...value, rehearsal }, revision }
}

type CaStep = AuditNote & Partial<Parameters<typeof commitChanges>[2]>

/** Stores a step with its rows, in one transaction, and has all processes take it. */
async function step(
  context: AdminContext,
  caller: AdminCaller,
  before: StoredCas,
  next: StoredAuthority,
  { action, detail, statements = [], notes = [], assertions = [] }: CaStep,
): Promise<void> {
  await commitChanges(context, caller, {
    statements: [...(await context.rotation.store(before, next, caller.at)), ...statements],
    notes: [{ action, detail }, ...notes],
    assertions,
  })
  // It is made: a process that cannot follow now logs that, and tries again by itself.
  await context.naming.follow().catch(() => undefined)
}

const revisionOf = ({ stored }: StoredCas): RevisionedObject => ({ revision: stored.revision ?? 0 })

const revisionedCas = async (context: AdminContext): Promise<RevisionedObject> =>
  revisionOf(await context.rotation.read())

async function readCas(context: AdminContext, ifMatch?: string): Promise<StoredCas> {
  const before = await context.rotation.read()
  checkIfMatch(ifMatch, revisionOf(before))
  return before
}

/** The certificates that end with the CA beside the issuing one. */
const otherQuery = (stored: StoredAuthority, phase: RotationPhase, at: number) => ({
  issuer: otherDigests(stored).intermediate_sha256,
  // A process of an earlier version may have issued by the old one without saying so.
  unsettled: phase === 'issuing',
  at,
})

async function holdersOf(
  { database }: AdminContext,
  { stored }: StoredCas,
  phase: RotationPhase,
  at: number,
): Promise<readonly CertificateHolder[]> {
  if (stored.rotation?.phase !== phase) return []
  return certificateHolders(database, otherQuery(stored, phase, at), eventLoopTurn)
}

const otherDigests = ({ rotation: open }: StoredAuthority) => {
  if (!open) throw new Error('there is one CA only')
  return digestsOf(open.ca)
}

const caView = ({ rootPem, intermediatePem }: Pick<IssuingAuthority, 'rootPem' | 'intermediatePem'>) => ({
  ...digestsOf({ 'root.crt': rootPem, 'intermediate.crt': intermediatePem }),
  root_not_after: endOf(rootPem),
  intermediate_not_after: endOf(intermediatePem),
})

const endOf = (pem: string): string => firstCertificateOf(pem).validToDate.toISOString()

const viewOf = (stored: Pick<StoredAuthority, 'root.crt' | 'intermediate.crt'>) =>
  caView({ rootPem: stored['root.crt'], intermediatePem: stored['intermediate.crt'] })

async function rotationResult(context: AdminContext, at: number) {
  const before = await context.rotation.read()
  const { stored } = before
  const { rotation: open, finished = [] } = stored
  return {
    value: {
      phase: open?.phase ?? ('none' as const),
      scope: open?.scope ?? null,
      issuing: viewOf(stored),
      other: open ? viewOf(open.ca) : null,
      prepared_at: open?.prepared_at ?? null,
      issued_at: open?.issued_at ?? null,
      holders: open ? await holdersView(context, stored, at) : null,
      finished: [...finished],
    },
    ...revisionOf(before),
  }
}

async function holdersView({ database }: AdminContext, stored: StoredAuthority, at: number) {
  const isIssuing = stored.rotation?.phase === 'issuing'
  const issuer = isIssuing ? otherDigests(stored).intermediate_sha256 : digestsOf(stored).intermediate_sha256
  const found = await certificateHolders(database, { issuer, unsettled: true, at }, eventLoopTurn)
  const active = lockedOut(found)
  const inactive = found.filter(({ is_active: isActive }) => !isActive).length
  return {
    active: active.length,
    in_grace: found.length - active.length - inactive,
    inactive,
    principals: active.slice(0, MAX_NAMED).map(({ principal_type, principal_id, name, last_seen_at }) => ({
      ...{ principal_type, principal_id, name, last_seen_at },
    })),
  }
}
