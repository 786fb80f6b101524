import { z } from 'zod'
import type { AdminContext } from '../operation/context.ts'

const HOUR_MS = 3_600_000

/** The time that the predecessor of a certificate or a key stays valid. Hours. */
export const graceHours = z.number().min(0).max(720)

/** Returns the end of the predecessor. ms since the epoch; null: at once. */
export const graceUntil = (
  { rotationGraceHours }: Pick<AdminContext, 'rotationGraceHours'>,
  at: number,
  hours = rotationGraceHours,
): number | null => (hours === 0 ? null : at + hours * HOUR_MS)

/** A state's predecessor that is honoured until then; nothing if there is none, or no grace. */
export const predecessorInGrace = (
  previous: string | null,
  until: number | null,
): readonly (readonly [string, string])[] =>
  previous === null || until === null ? [] : [[previous, new Date(until).toISOString()]]
