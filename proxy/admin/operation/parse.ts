import { type ZodType, z } from 'zod'
import { parseCapabilities } from '../../../db/capabilities.ts'
import { printPath } from '../../../plugins/operator-files/explain-issue.ts'
import {
  ADMIN_CAPABILITIES,
  hasAdminPrefix,
  isAdminCapability,
} from '../../../plugins/operators/capabilities.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'

/**
 * Reads one member of an input. Refuses with `body_unprocessable`, naming every field that breaks a rule,
 * unknown ones too.
 */
export function parse<T>(schema: ZodType<T>, part: unknown): T {
  const result = schema.safeParse(part)
  if (result.success) return result.data
  throw unprocessableBody(result.error.issues.flatMap(fieldErrors))
}

function fieldErrors(issue: z.core.$ZodIssue): { field: string; message: string }[] {
  if (issue.code !== 'unrecognized_keys') return [{ field: fieldName(issue.path), message: issue.message }]
  return issue.keys.map((key) => ({
    field: fieldName([...issue.path, key]),
    message: 'is not a field of this request',
  }))
}

const fieldName = (path: readonly PropertyKey[]): string => printPath(path) || 'body'

/** An object that counts its changes. */
export interface RevisionedObject {
  readonly revision: number
}

/** The entity tag of an object: its revision. */
export const etagOf = ({ revision }: RevisionedObject): string => `"${revision}"`

/**
 * Honours `If-Match` (RFC 9110 §13.1.1): refuses with `precondition_failed` if it names another state of the
 * object, so that a change decided on a stale read does not undo somebody else's. Absent or `*` always
 * matches. Returns the revision that the write must still find, or undefined if it may find any.
 */
export function checkIfMatch(ifMatch: string | undefined, record: RevisionedObject): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(record))) throw new Refusal('precondition_failed')
  return record.revision
}

/** One token of spec §8, as JSON Schema has it. */
export const CAPABILITY_SCHEMA = { type: 'string', pattern: '^[a-z_][a-z0-9_.]{0,63}$' } as const

/**
 * A capability set (spec §8), each bad entry named by its index. `rule` says what is wrong with a token, or
 * null.
 */
const setOf = (rule: (capability: string) => string | null) =>
  z.unknown().transform((value, context): readonly string[] => {
    const parsed = parseCapabilities(value)
    const refuse = (message: string, index?: number): void =>
      context.addIssue({ code: 'custom', message, path: index === undefined ? [] : [index] })
    if (!parsed.ok) {
      for (const { field, message } of parsed.errors) {
        const index = /\[(\d+)\]$/.exec(field)?.[1]
        refuse(message, index === undefined ? undefined : Number(index))
      }
      return z.NEVER
    }
    // Proven by the parser: an array of tokens.
    for (const [index, token] of (value as readonly string[]).entries()) {
      const message = rule(token)
      if (message !== null) refuse(message, index)
    }
    return parsed.capabilities
  })

/** The set of a caller of models and tools. */
export const callerCapabilities = setOf((token) =>
  hasAdminPrefix(token) ? 'can be held by operators only' : null,
).meta({ type: 'array', items: CAPABILITY_SCHEMA, maxItems: 64, examples: [['llm.chat']] })

/** The set of an operator: people who call models are users. */
export const adminCapabilities = setOf((token) =>
  isAdminCapability(token) ? null : `must be one of ${ADMIN_CAPABILITIES.join(', ')}`,
).meta({
  type: 'array',
  items: { type: 'string', enum: [...ADMIN_CAPABILITIES] },
  examples: [['admin.read']],
})

/** The short name of a principal: the service adds its own `<org>::` (spec §2.1). */
export const shortName = z
  .string()
  .regex(
    // `.` and `..` are steps of a path: no SPIFFE id may hold them, and no client could name them in a URL.
    /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,64}$/,
    'must be 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen, and not "." or ".."',
  )
  .meta({ examples: ['daily-report'] })

// Shown to people and in logs: nothing that moves a cursor or hides a character.
export const displayName = z
  .string()
  .max(256)
  .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, 'must not contain control or formatting characters')
