import { isAbsolute } from 'node:path'
import { z } from 'zod'

const DAYS = { d: 1, w: 7, y: 365 }
const SPAN = /^([1-9][0-9]{0,4})([dwy])$/

const SPAN_FORM = 'must be a number of days, weeks or years, from 1d on: 90d, 12w, 7y'
const span = z.string(SPAN_FORM).regex(SPAN, SPAN_FORM)

/** Returns the days of a span: 90 of `90d`. */
export function daysOf(text: string): number {
  const [, count, unit = 'd'] = SPAN.exec(text) ?? []
  return Number(count) * DAYS[unit as keyof typeof DAYS]
}

/** The options of the `archive` file (docs/operating.md#archive). */
export const archiveOptions = z.strictObject({
  keep: span.describe('The time that rows stay in the database: 90d.'),
  to: z
    .string()
    .max(4_096)
    .refine(isAbsolute, 'must be an absolute path')
    .describe('The folder of the segments, which is there and belongs to this log alone.'),
  at: z
    .string()
    .regex(/^([01][0-9]|2[0-3]):[0-5][0-9]$/, 'must be a time of day: "03:00"')
    .default('03:00')
    .describe('The time of day from which rows are moved. UTC. Default 03:00.'),
})

export type ArchiveOptions = z.infer<typeof archiveOptions>
