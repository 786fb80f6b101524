import { type ZodType, z } from 'zod'
import { parseCapabilities } from '../../db/capabilities.ts'
import { printPath } from '../../plugins/operator-files/explain-issue.ts'
import { unprocessable } from '../../plugins/refusal.ts'

/** Reads an admin body. Refuses with `body_unprocessable`, naming every field that breaks a rule, unknown ones too. */
export function parse<T>(schema: ZodType<T>, body: unknown): T {
  const result = schema.safeParse(body)
  if (result.success) return result.data
  throw unprocessable(result.error.issues.flatMap(fieldErrors))
}

function fieldErrors(issue: z.core.$ZodIssue): { field: string; message: string }[] {
  if (issue.code !== 'unrecognized_keys') return [{ field: fieldName(issue.path), message: issue.message }]
  return issue.keys.map((key) => ({
    field: fieldName([...issue.path, key]),
    message: 'is not a field of this request',
  }))
}

const fieldName = (path: readonly PropertyKey[]): string => printPath(path) || 'body'

/** A capability set (spec §8), each bad entry named by its index. */
export const capabilities = z.unknown().transform((value, context): readonly string[] => {
  const parsed = parseCapabilities(value)
  if (parsed.ok) return parsed.capabilities
  for (const { field, message } of parsed.errors) {
    const index = /\[(\d+)\]$/.exec(field)?.[1]
    context.addIssue({ code: 'custom', message, path: index === undefined ? [] : [Number(index)] })
  }
  return z.NEVER
})

/** The short name of a principal: the service adds its own `<org>::` (spec §2.1). */
export const shortName = z
  .string()
  .regex(/^[a-zA-Z0-9._-]{1,64}$/, 'must be 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen')

// Shown to people and in logs: nothing that moves a cursor or hides a character.
export const displayName = z
  .string()
  .max(256)
  .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, 'must not hold control or formatting characters')
