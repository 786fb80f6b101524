import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'
import { type CallLimit, isRatePeriod, meterAt } from './limit.ts'

/** The steps of an amount at which a row is written, in percent. */
export const ALERT_STEPS = [50, 80, 100] as const

/** The last row of a limit: the span of its meter, and the step that was reached. */
export type AlertedStep = readonly [span: string, step: number]

/** Limits of a window, by their id. */
export type AlertedSteps = ReadonlyMap<string, AlertedStep>

/** A steady rate is near its amount for a moment, as calls under way are; an amount of nothing is never used. */
export const isAlertable = ({ per, amount }: Pick<CallLimit, 'per' | 'amount'>): boolean =>
  per !== undefined && !isRatePeriod(per) && amount > 0

/** Returns the highest step that is reached, or 0. */
export const stepOf = ({ used, amount }: { readonly used: number; readonly amount: number }): number =>
  ALERT_STEPS.findLast((step) => amount > 0 && used * 100 >= step * amount) ?? 0

/** Returns the step of a limit that a row has said in the span of an instant; 0: none. */
export function alertedStep(alerted: AlertedSteps, limit: CallLimit, at: number): number {
  const [span, step] = alerted.get(limit.id) ?? ['', 0]
  return span === meterAt(limit, at).span ? step : 0
}

export async function readAlerted({ kysely }: Pick<Database, 'kysely'>): Promise<AlertedSteps> {
  const rows = await kysely
    .selectFrom('limits')
    .select(['limit_id', 'alerted'])
    .where('alerted', 'is not', null)
    .execute()
  // Proven by noteAlerted, which alone writes it.
  return new Map(rows.map(({ limit_id: id, alerted }) => [id, JSON.parse(alerted ?? 'null') as AlertedStep]))
}

/** Notes the row of a step, if the limit and its last row are as they were read. */
export function noteAlerted(
  { kysely }: Pick<Database, 'kysely'>,
  { id, revision }: Pick<CallLimit, 'id' | 'revision'>,
  { before, now }: { readonly before: AlertedStep | undefined; readonly now: AlertedStep },
): LedgerStatement {
  const query = kysely
    .updateTable('limits')
    .set({ alerted: JSON.stringify(now) })
    .where('limit_id', '=', id)
    .where('revision', '=', revision)
    .where('alerted', before ? '=' : 'is', before ? JSON.stringify(before) : null)
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}
