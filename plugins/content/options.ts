import { z } from 'zod'
import { RULE_NAMES } from './rules.ts'
import { CONTENT_PLACES } from './verdict.ts'

const places = z.array(z.enum(CONTENT_PLACES)).min(1).max(CONTENT_PLACES.length)
const action = z
  .enum(['observe', 'refuse'])
  .default('refuse')
  .describe('observe: the row says what was found, and the call goes on. Default refuse.')
const names = z.array(z.enum(RULE_NAMES)).max(RULE_NAMES.length)

const secrets = z.strictObject({
  where: places.default([...CONTENT_PLACES]).describe('The places that are judged. Default: all four.'),
  action,
  rules: z
    .union([z.literal('recommended'), names.min(1)])
    .default('recommended')
    .describe('recommended, or the names of rules (docs/content.md#rules).'),
  off: names.default([]).describe('Rules that are left out. Default: none.'),
  allow: z
    .array(z.string().min(8).max(4096))
    .max(1000)
    .default([])
    .describe('Values that look like secrets and are none, such as those of examples.'),
})

const check = z.strictObject({
  name: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,31}$/, 'must be 1 to 32 of a-z, 0-9 and _, and begin with a letter')
    .describe('The name of the service in rows and figures.'),
  url: z
    .string()
    .max(4096)
    .refine(isServiceUrl, 'must be an http or https URL without credentials or fragment')
    .describe('Asked by POST. It sees content: over http:// anybody in between does too.'),
  where: places.describe('The places that it is asked about.'),
  token: z
    .string()
    .max(4096)
    .regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces')
    .optional()
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what the operator writes
    .describe('Sent as Authorization: Bearer. Usually ${file:/path}. Default: none is sent.'),
  deadline_ms: z
    .int()
    .min(1)
    .max(10_000)
    .default(800)
    .describe('How long an answer may take before the call is refused. Milliseconds. Default 800.'),
  max_kib: z
    .int()
    .min(1)
    .max(4_096)
    .default(256)
    .describe('The most text that it is sent. What has more is refused. KiB. Default 256.'),
  action,
})

function isServiceUrl(given: string): boolean {
  const parsed = URL.parse(given)
  if (!parsed || (parsed.protocol !== 'https:' && parsed.protocol !== 'http:')) return false
  return !parsed.username && !parsed.password && !given.includes('#')
}

/** The options of the `content` plugin file. Does NOT check that a service is there. */
export const contentOptions = z
  .strictObject({
    secrets: secrets.prefault({}).describe('Secrets, found by rules.'),
    checks: z
      .array(check)
      .max(8)
      .default([])
      .describe('Services of your own that judge texts. Default: none.'),
  })
  .superRefine(({ checks }, context) => {
    for (const [index, { name }] of checks.entries())
      if (checks.findIndex((one) => one.name === name) < index)
        context.addIssue({ code: 'custom', path: ['checks', index, 'name'], message: 'stands twice' })
  })

export type ContentOptions = z.infer<typeof contentOptions>
export type ContentServiceOptions = ContentOptions['checks'][number]
