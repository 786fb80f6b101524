import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import type { ChangedLimit } from '../../../db/ledger/rehearsal/limit-changes.ts'
import type { CallGroup, CallPile } from '../../../db/ledger/rehearsal/piles.ts'
import type { DecisionWindow, RehearsalResult, WalkProgress } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext, ExpectationOutcome } from '../operation/context.ts'
import type { RehearsalPurpose } from '../operation/ledger-places.ts'
import { etagOf } from '../operation/operation.ts'
import { capabilityToken, instant } from '../operation/shapes.ts'
import { evaluateWithChanges } from './expected.ts'
import { limitEffectShape, limitEffectView } from './limit-effect.ts'
import type { ResolvedChanges } from './resolve.ts'

const count = z.int().min(0)
const place = z.strictObject({ stream: z.string(), seq: z.int() }).nullable()

const heldShape = z.strictObject({ days: count, per_day: count, most_per_day: count }).meta({
  description:
    'Calls that would wait for an approval: on how many days there were any, and how many a day (UTC).',
})

const group = z
  .strictObject({
    principal_id: z.string().nullable(),
    principal_ref: z.string().exactOptional().meta({ description: 'For a user: its name in the ledger.' }),
    action: z.string(),
    tool: z.string().nullable(),
    model: z.string().nullable(),
    capability: capabilityToken.nullable(),
    reason: z.string(),
    decisions: count,
    first_at: instant,
    last_at: instant,
    samples: z.array(z.string()).meta({ description: 'At most three request ids.' }),
    newly_held: heldShape.exactOptional(),
  })
  .meta({ id: 'RehearsalGroup' })

export const groupsShape = z.array(group).meta({ description: 'Most calls first, at most 500.' })

const members = {
  at: instant,
  window: z.strictObject({
    since: instant,
    until: instant,
    decisions: count,
    principals: count,
    first: place,
    last: place,
  }),
  unchanged: count,
  newly_refused: groupsShape,
  newly_allowed: groupsShape,
  undecidable: z.array(z.strictObject({ why: z.string(), decisions: count })),
  totals: z.strictObject({ newly_refused: count, newly_allowed: count, undecidable: count }),
  newly_held: heldShape.exactOptional(),
  disagreements: count,
  limits: z
    .array(limitEffectShape)
    .exactOptional()
    .meta({ description: 'Of each changed limit; absent: none changes.' }),
  expectations: z
    .array(z.strictObject({ line: z.int(), sentence: z.string(), before: z.boolean(), after: z.boolean() }))
    .meta({ description: 'The expectations that are false before or after the change.' }),
  etags: z.record(z.string(), z.string()),
  truncated: z.boolean(),
}

export const rehearsalShape = z.strictObject({ id: z.string(), ...members }).meta({ id: 'Rehearsal' })

/** One that was never recorded: a preview. */
export const previewShape = z.strictObject(members).meta({ id: 'RehearsalPreview' })

export type ChangePreview = z.output<typeof previewShape>

interface RehearsalFindings {
  readonly rehearsed: RehearsalResult
  readonly window: DecisionWindow
  /** ms since the epoch. */
  readonly at: number
  readonly etags: Readonly<Record<string, string>>
  readonly expectations: readonly ExpectationOutcome[]
  readonly changed: readonly ChangedLimit[]
}

async function rehearsalView(
  database: Database,
  { rehearsed, window, at, etags, expectations, changed }: RehearsalFindings,
): Promise<ChangePreview> {
  const { newlyRefused, newlyAllowed, undecidable, decisions, principals, first, last } = rehearsed
  const [refused = [], allowed = []] = await pileViews(database, [newlyRefused, newlyAllowed])
  const names = await namesOf(
    database,
    rehearsed.limits.flatMap(({ groups }) => groups),
  )
  const limits = rehearsed.limits.flatMap((effect, index) => {
    const change = changed[index]
    return change ? [limitEffectView(effect, change, { window, at, names })] : []
  })
  return {
    at: new Date(at).toISOString(),
    window: { ...window, decisions, principals, first, last },
    unchanged: rehearsed.unchanged,
    newly_refused: refused,
    newly_allowed: allowed,
    undecidable: undecidable.map((one) => ({ ...one })),
    totals: {
      newly_refused: newlyRefused.decisions,
      newly_allowed: newlyAllowed.decisions,
      undecidable: undecidable.reduce((sum, one) => sum + one.decisions, 0),
    },
    ...(newlyRefused.held && { newly_held: newlyRefused.held }),
    disagreements: rehearsed.disagreements,
    ...(limits.length > 0 && { limits }),
    expectations: expectations.map((one) => ({ ...one })),
    etags: { ...etags },
    truncated:
      newlyRefused.truncated || newlyAllowed.truncated || rehearsed.limits.some((one) => one.truncated),
  }
}

export async function pileViews(
  database: Database,
  piles: readonly CallPile[],
): Promise<readonly z.output<typeof groupsShape>[]> {
  const names = await namesOf(
    database,
    piles.flatMap((pile) => pile.groups),
  )
  const named = (one: CallGroup) => {
    const name = names.get(one.principal_id ?? '')
    const who = name === undefined ? {} : { principal_id: name, principal_ref: one.principal_id ?? '' }
    return { ...one, samples: [...one.samples], ...who }
  }
  return piles.map((pile) => pile.groups.map(named))
}

async function namesOf(
  { kysely }: Database,
  of: readonly Pick<CallGroup, 'principal_id'>[],
): Promise<ReadonlyMap<string, string>> {
  const refs = [...new Set(of.flatMap(({ principal_id: id }) => (id?.startsWith('usr_') ? [id] : [])))]
  if (refs.length === 0) return new Map()
  const found = await kysely
    .selectFrom('subject_keys')
    .select(['principal_ref', 'principal_id'])
    .where('principal_ref', 'in', refs)
    .execute()
  return new Map(found.map(({ principal_ref: ref, principal_id: id }) => [ref, id]))
}

/** The window if the caller says none. ms. */
export const DEFAULT_WINDOW_MS = 30 * 86_400_000

const INSTANT_RULE = 'must be an instant in the form of RFC 3339'

/** An instant as callers write it, in ms since the epoch. */
export const instantInput = z.iso
  .datetime({ offset: true, error: INSTANT_RULE })
  .transform((text) => Date.parse(text))
  .refine((at) => at >= 0 && at < 253_402_300_800_000, INSTANT_RULE)
  .meta({ type: 'string', format: 'date-time' })

/**
 * The window up to an instant, since another one or for 30 days. ms since the epoch. Refuses with
 * `body_unprocessable` if it would begin after its end.
 */
export function windowOf(until: number, since = Math.max(until - DEFAULT_WINDOW_MS, 0)): DecisionWindow {
  if (since >= until)
    throw unprocessableBody([{ field: 'since', message: 'must be before the end of the window' }])
  return { since: timestamp(since), until: timestamp(until) }
}

/** The principals whose calls are looked up one by one; of more, all calls of the window are read. */
const MAX_ABOUT = 100

interface RunOptions {
  /** Default: a requested rehearsal. */
  readonly purpose?: RehearsalPurpose
  readonly onProgress?: ((progress: WalkProgress) => void) | undefined
}

/**
 * Rehearses changes while the caller waits. Writes nothing. Refuses with `overloaded` if it, or all, rehearse
 * too much at once for this purpose.
 */
export async function runRehearsal(
  context: AdminContext,
  { actor, at, hangup }: AdminCaller,
  { laid, principals, etags }: ResolvedChanges,
  window: DecisionWindow,
  { purpose = 'rehearsal', onProgress }: RunOptions = {},
): Promise<ChangePreview> {
  const { walkCalls, rehearsalPlaces, database } = context
  const few = principals !== null && principals.length <= MAX_ABOUT ? principals : null
  const task = { kind: 'rehearse', changes: laid, wanted: { ...window, principals: few } } as const
  const rehearsed = await rehearsalPlaces.run(purpose, actor.id, () =>
    walkCalls(task, hangup.signal, onProgress),
  )
  const expectations = await evaluateWithChanges(context, laid)
  const changed = laid.limits?.limits ?? []
  return rehearsalView(database, { rehearsed, window, at, etags, expectations, changed })
}

/** Rehearses new sets of principals that were just read. */
export function previewOf(
  context: AdminContext,
  caller: AdminCaller,
  changes: readonly { readonly principal: PrincipalRecord; readonly capabilities: readonly string[] }[],
): Promise<ChangePreview> {
  const principals = new Map(
    changes.map(({ principal, capabilities }) => [principal.principal_ref, { capabilities }]),
  )
  const etags = changes.map(({ principal }) => [principal.principal_id, etagOf(principal)])
  const resolved = {
    laid: { principals, resources: new Map(), bindings: new Map(), settings: {} },
    takesOnly: false,
    principals: [...principals.keys()],
    text: '',
    etags: Object.fromEntries(etags),
  }
  return runRehearsal(context, caller, resolved, windowOf(caller.at))
}
