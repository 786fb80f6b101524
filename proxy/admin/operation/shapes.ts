import { z } from 'zod'
import { isCapability, parseCapabilities } from '../../../db/capabilities.ts'
import { isToolApprovals, type ToolApprovals } from '../../../db/ledger/approvals/approval-rule.ts'
import { isMinProof } from '../../../db/ledger/authority/rule.ts'
import { parseListCursor } from '../../../db/support/cursor.ts'
import {
  ADMIN_CAPABILITIES,
  hasAdminPrefix,
  isAdminCapability,
} from '../../../plugins/operators/capabilities.ts'

export const idParams = z.object({ id: z.string() })

/** The same of an MCP server. */
export const resourceParams = z.object({ resource_id: z.string() })

export const listCursor = z
  .string()
  .transform((text, context) => {
    const cursor = parseListCursor(text)
    if (cursor) return cursor
    context.addIssue({ code: 'custom', message: 'is not a cursor of this service' })
    return z.NEVER
  })
  .meta({ type: 'string' })

/** `?limit=` of a list that is small. `usual`: where it is absent. */
export const pageLimit = (usual = 100) =>
  z
    .string()
    .regex(/^[1-9]\d{0,2}$/, 'must be a whole number from 1 to 999')
    .transform(Number)
    .default(usual)
    .meta({ type: 'integer', minimum: 1, maximum: 999, default: usual })

/** A span of days, weeks or years, as operators write it. */
export const SPAN = /^([1-9][0-9]{0,4})([dwy])$/

const SPAN_FORM = 'must be a number of days, weeks or years, from 1d on: 90d, 12w, 7y'
export const span = z.string(SPAN_FORM).regex(SPAN, SPAN_FORM)

export const LABEL_PATTERN = '^[a-z0-9][a-z0-9._-]{0,62}$'
const LABEL_WORD = new RegExp(LABEL_PATTERN)

/** Tells keys and values of labels, and names of sets. */
export const isLabelWord = (text: string): boolean => LABEL_WORD.test(text)

export const labelWord = z
  .string()
  .regex(LABEL_WORD, 'must be 1 to 63 of a-z, 0-9, dot, underscore and hyphen, a letter or digit first')

export const instant = z.iso
  .datetime()
  .meta({ id: 'Instant', description: 'RFC 3339, in UTC.', examples: ['2026-08-01T12:00:00.000Z'] })

/** `?dry_run=true` of an operation with a preview. */
export const dryRun = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .exactOptional()
  .meta({
    type: 'string',
    enum: ['true', 'false'],
    description:
      'True: nothing is changed; `rehearsal` says what the change would have done to the calls of the last 30 days.',
  })

export const sha256 = z
  .string()
  .regex(/^[0-9a-f]{64}$/)
  .meta({ id: 'Sha256', description: 'SHA-256, lower-case hexadecimal.' })

export const capabilityToken = z.string().meta({ description: 'A capability.', examples: ['llm.chat'] })

export const pemText = z.string().meta({ description: 'PEM.' })

export const author = z
  .string()
  .nullable()
  .meta({
    id: 'Author',
    description:
      'An operator, `admin` (the secret), `socket:<uid>`, or the principal itself; null if it is not known.',
    examples: ['acme::operator::alice'],
  })

export const anchorStanding = z.strictObject({
  anchor: z.string().meta({ description: 'Its kind and place: `witness:https://…`.' }),
  size: z
    .int()
    .min(0)
    .meta({ description: 'The number of rows under the last checkpoint that it keeps; 0: none.' }),
  kept_at: instant.nullable(),
  error: z
    .string()
    .nullable()
    .meta({ description: 'Why it did not take the last checkpoint, if it did not.' }),
  failed_at: instant.nullable(),
  late: z.boolean().meta({ description: 'Whether it has lacked a checkpoint for more than two minutes.' }),
})

export type AnchorStanding = Readonly<z.infer<typeof anchorStanding>>

/** One token of spec §8, as JSON Schema has it. */
export const CAPABILITY_SCHEMA = { type: 'string', pattern: '^[a-z_][a-z0-9_.]{0,63}$' } as const

/** One token of spec §8. */
export const capabilityField = z
  .unknown()
  .refine(
    isCapability,
    'must be a capability: 1 to 64 of a-z, 0-9, underscore and dot, no digit or dot first',
  )
  .transform(String)
  .refine((token) => !hasAdminPrefix(token), 'is a capability for administration only')
  .meta(CAPABILITY_SCHEMA)

const MAX_TOOLS = 256
const MAX_TOOL_LENGTH = 128
// The audit row of a change holds the old map and the new one whole.
const MAX_TOOLS_TEXT = 16_384

/** Something of each tool, by name; without a prototype. `what` names it. */
// Parsed by hand: a record of zod's drops a tool called `__proto__`, and every member must be stored or
// refused.
const ofEachTool = <Value extends string>(isOne: (value: unknown) => value is Value, what: string) =>
  z.unknown().transform((value, context): Readonly<Record<string, Value>> => {
    const fault = (message: string, path: string[] = []) =>
      context.addIssue({ code: 'custom', message, path })
    const kept: Record<string, Value> = Object.create(null)
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      fault(`must be an object: the name of a tool, and ${what}`)
      return kept
    }
    const entries: readonly (readonly [string, unknown])[] = Object.entries(value)
    if (entries.length > MAX_TOOLS) fault(`must have at most ${MAX_TOOLS} entries, got ${entries.length}`)
    else if (JSON.stringify(entries).length > MAX_TOOLS_TEXT)
      fault(`must be at most ${MAX_TOOLS_TEXT} characters long`)
    else {
      for (const [tool, token] of entries) {
        if (!isToolName(tool))
          fault(`names of tools must be 1 to ${MAX_TOOL_LENGTH} visible ASCII characters`)
        else if (!isOne(token)) fault(`must be ${what}`, [tool])
        else kept[tool] = token
      }
    }
    return kept
  })

/** The own capabilities of tools. */
export const toolCapabilities = ofEachTool(isCapability, 'a capability').meta({
  type: 'object',
  additionalProperties: CAPABILITY_SCHEMA,
  maxProperties: MAX_TOOLS,
})

/** The least proof that a server or a tool takes of a caller (docs/people.md#grades). */
export const minProof = z.enum(['certificate', 'key', 'none'])

/** The least proofs of tools. */
export const toolMinProof = ofEachTool(isMinProof, 'certificate, key or none').meta({
  type: 'object',
  additionalProperties: { type: 'string', enum: minProof.options },
  maxProperties: MAX_TOOLS,
})

const isToolName = (text: string): boolean => text.length <= MAX_TOOL_LENGTH && /^[\x21-\x7e]+$/.test(text)

/** The approver of calls of a tool; null: nobody. */
export const approverKind = z.enum(['operator', 'person']).nullable()

/** The own rules of tools about approvals, by name; without a prototype. */
// Parsed by hand for the reason above.
export const toolApprovals = z
  .unknown()
  .transform((value, context): ToolApprovals => {
    const kept: Record<string, ToolApprovals[string]> = Object.create(null)
    const fault = (message: string) => context.addIssue({ code: 'custom', message })
    if (!isToolApprovals(value) || Array.isArray(value))
      fault('must be an object: the name of a tool, and operator, person or null')
    else if (Object.keys(value).length > MAX_TOOLS) fault(`must have at most ${MAX_TOOLS} entries`)
    else if (JSON.stringify(value).length > MAX_TOOLS_TEXT)
      fault(`must be at most ${MAX_TOOLS_TEXT} characters long`)
    else if (!Object.keys(value).every(isToolName))
      fault(`names of tools must be 1 to ${MAX_TOOL_LENGTH} visible ASCII characters`)
    else for (const [tool, by] of Object.entries(value)) kept[tool] = by ?? null
    return kept
  })
  .meta({
    type: 'object',
    additionalProperties: { type: ['string', 'null'], enum: ['operator', 'person', null] },
    maxProperties: MAX_TOOLS,
  })

/** `rule` says what is wrong with a token, or null. Each bad entry is named by its index. */
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

const passedOverBlock = z
  .strictObject({
    line: z.int().meta({ description: 'The line of the text at which the block begins.' }),
    subject: z.string().nullable().meta({ description: 'Null: it cannot be read.' }),
    reason: z.string().meta({ examples: ['certificate_expired', 'duplicate', 'attached_already'] }),
    message: z.string(),
  })
  .meta({ id: 'PassedOverBlock' })

/** A member of answers: those blocks, if there are any. */
export const passedOverBlocks = z.array(passedOverBlock).exactOptional()

export type PassedOverBlocks = NonNullable<z.output<typeof passedOverBlocks>>

/** The blocks of a given text that are left out, as rows and answers tell of them: absent if there are none. */
export const passedOverOf = (blocks: Readonly<PassedOverBlocks>) =>
  blocks.length === 0 ? {} : { passed_over: [...blocks] }
