import { isAbsolute } from 'node:path'
import { z } from 'zod'
import { SPAN, span } from '../admin/operation/shapes.ts'

const DAYS = { d: 1, w: 7, y: 365 }

/** Returns the days of a span: 90 of `90d`. */
export function daysOf(text: string): number {
  const [, count, unit = 'd'] = SPAN.exec(text) ?? []
  return Number(count) * DAYS[unit as keyof typeof DAYS]
}

/** The rows that a segment has at most, unless an option says otherwise. */
export const SEGMENT_ROWS = 1_000_000

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
  confirm: z
    .boolean()
    .default(false)
    .describe(
      'Rows stay until `archive confirm` says that a copy elsewhere holds their file. Default false.',
    ),
  forget: span
    .describe('The age from which `archive forget` needs no reason. Default: it always needs one.')
    .exactOptional(),
  segment: z
    .strictObject({
      days: z.int().min(1).max(31).default(1).describe('The days of a segment, by their states. Default 1.'),
      rows: z
        .int()
        .min(256)
        .max(10 * SEGMENT_ROWS)
        .default(SEGMENT_ROWS)
        .describe('The rows after which a segment ends sooner, at a multiple of 256. Default 1000000.'),
    })
    .prefault({})
    .describe('The size of a segment: whichever comes first.'),
})

export type ArchiveOptions = z.infer<typeof archiveOptions>
