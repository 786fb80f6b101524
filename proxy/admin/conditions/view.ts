import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import type { CallGroup, CallPile } from '../../../db/ledger/rehearsal/piles.ts'
import type { DecisionWindow, RehearsalResult } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { ExpectationOutcome } from '../operation/context.ts'
import { capabilityToken, instant } from '../operation/shapes.ts'

const count = z.int().min(0)
const place = z.strictObject({ stream: z.string(), seq: z.int() }).nullable()

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
  disagreements: count,
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
}

export async function rehearsalView(
  database: Database,
  { rehearsed, window, at, etags, expectations }: RehearsalFindings,
): Promise<ChangePreview> {
  const { newlyRefused, newlyAllowed, undecidable, decisions, principals, first, last } = rehearsed
  const [refused = [], allowed = []] = await pileViews(database, [newlyRefused, newlyAllowed])
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
    disagreements: rehearsed.disagreements,
    expectations: expectations.map((one) => ({ ...one })),
    etags: { ...etags },
    truncated: newlyRefused.truncated || newlyAllowed.truncated,
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

async function namesOf({ kysely }: Database, of: readonly CallGroup[]): Promise<ReadonlyMap<string, string>> {
  const refs = [...new Set(of.flatMap(({ principal_id: id }) => (id?.startsWith('usr_') ? [id] : [])))]
  if (refs.length === 0) return new Map()
  const found = await kysely
    .selectFrom('subject_keys')
    .select(['principal_ref', 'principal_id'])
    .where('principal_ref', 'in', refs)
    .execute()
  return new Map(found.map(({ principal_ref: ref, principal_id: id }) => [ref, id]))
}
