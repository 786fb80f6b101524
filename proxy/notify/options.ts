import { z } from 'zod'

const MAX_TARGETS = 16

/** The events that somebody may be told of, and the rows that they are. */
export const EVENT_ACTIONS = {
  'approval.requested': 'approval.requested',
  'approval.approved': 'approval.approved',
  'approval.declined': 'approval.declined',
  'approval.expired': 'approval.expired',
  tool_quarantined: 'mcp_resource.tool_quarantined',
  'limit.alert': 'limit.alert',
  'stop.begun': 'stop.begun',
  'stop.ended': 'stop.ended',
} as const

export type NotifiedEvent = keyof typeof EVENT_ACTIONS

const EVENTS = Object.keys(EVENT_ACTIONS) as [NotifiedEvent, ...NotifiedEvent[]]

const isHttps = (text: string): boolean => {
  const url = URL.parse(text)
  return url?.protocol === 'https:' && !url.username && !url.password && !/[#\s]/.test(text)
}

/** A secret of Standard Webhooks: base64 after a prefix. */
const SECRET = /^whsec_[A-Za-z0-9+/]{32,344}={0,2}$/

const common = {
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,31}$/, 'must be 1 to 32 of a-z, 0-9 and -')
    .describe('The name by which its place in the ledger is kept. Another name begins with what comes then.'),
  url: z
    .string()
    .max(2_048)
    .refine(isHttps, 'must be an https URL without credentials or fragment')
    .describe('Where messages are posted to. 2xx takes them; redirects are not followed.'),
  events: z.array(z.enum(EVENTS)).min(1).max(EVENTS.length).describe('The events that are told.'),
}

const target = z.discriminatedUnion('format', [
  z.strictObject({ ...common, format: z.literal('slack').describe('{text, blocks}, as Slack takes it.') }),
  z.strictObject({
    ...common,
    format: z.literal('json').describe('{type, timestamp, data}, signed as Standard Webhooks does.'),
    secret: z
      .string()
      .trim()
      .regex(SECRET, 'must be whsec_ and 24 bytes or more in base64')
      // biome-ignore lint/suspicious/noTemplateCurlyInString: what operators write
      .describe('The key of signatures, by reference: ${file:/run/secrets/hook}.'),
  }),
])

/** The options of `75-notify.yaml` (docs/notify.md): who is told of what has come into the ledger. */
export const notifyOptions = z.strictObject({
  targets: z
    .array(target)
    .max(MAX_TARGETS)
    .refine(
      (targets) => new Set(targets.map(({ name }) => name)).size === targets.length,
      'must have one target of each name',
    )
    .describe('Those who are told.'),
})

export type NotifyOptions = z.output<typeof notifyOptions>
export type NotifyTarget = NotifyOptions['targets'][number]

/** The name by which a target's cursor is stored. */
export const targetReader = ({ name }: Pick<NotifyTarget, 'name'>): string => `notify:${name}`
