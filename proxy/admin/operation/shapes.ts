import { z } from 'zod'
import { parseListCursor } from '../../../db/support/cursor.ts'

/** The variable segment of a path that names one object by its id. */
export const idParams = z.object({ id: z.string() })

/** The same of an MCP server. */
export const resourceParams = z.object({ resource_id: z.string() })

/** The end of the page before, in a list that is newest first. */
export const listCursor = z
  .string()
  .transform((text, context) => {
    const cursor = parseListCursor(text)
    if (cursor) return cursor
    context.addIssue({ code: 'custom', message: 'is not a cursor of this service' })
    return z.NEVER
  })
  .meta({ type: 'string' })

/** An instant as operations show it. */
export const instant = z.iso
  .datetime()
  .meta({ id: 'Instant', description: 'RFC 3339, in UTC.', examples: ['2026-08-01T12:00:00.000Z'] })

/** A digest as operations show it. */
export const sha256 = z
  .string()
  .regex(/^[0-9a-f]{64}$/)
  .meta({ id: 'Sha256', description: 'SHA-256, lower-case hexadecimal.' })

/** A capability as operations show it. */
export const capabilityToken = z.string().meta({ description: 'A capability.', examples: ['llm.chat'] })

/** A certificate, a chain of them, or a key, as operations show and take it. */
export const pemText = z.string().meta({ description: 'PEM.' })

/** The author of an object or change, as operations show it. */
export const author = z
  .string()
  .nullable()
  .meta({
    id: 'Author',
    description:
      'An operator, `admin` (the secret), `socket:<uid>`, or the principal itself; null if it is not known.',
    examples: ['acme::operator::alice'],
  })
