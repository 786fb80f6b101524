import { createHmac, hash } from 'node:crypto'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { escapeHidden } from '../visible.ts'
import { EVENT_ACTIONS, type NotifiedEvent, type NotifyTarget } from './options.ts'

/** A message about one row: never with arguments, definitions or reasons. */
export interface NotifiedMessage {
  readonly event: NotifiedEvent
  /** RFC 3339. */
  readonly at: string
  /** The instant after which nobody needs to be told. ms since the epoch. */
  readonly until: number
  /** The sentence for people. */
  readonly text: string
  readonly link: string
  readonly tool: string | null
  readonly principal: string | null
}

/** The base URLs of the pages that messages lead to. */
export type PageBase = () => string

/** The time for which other events than requests are tried. ms. */
const TRIED_MS = 3_600_000
/** The longest part of a message that somebody else has chosen. UTF-16 code units. */
const MAX_NAME = 200

const EVENTS = new Map(Object.entries(EVENT_ACTIONS).map(([event, action]) => [action, event]))

/** Reads the event that a row is; null: none. */
function eventOf({ action }: Pick<AuditRow, 'action'>): NotifiedEvent | null {
  // Proven by the table that it is looked up in.
  return (EVENTS.get(action as (typeof EVENT_ACTIONS)[NotifiedEvent]) as NotifiedEvent | undefined) ?? null
}

/**
 * Makes the message of a row; null if it is no event that these want, or an approval that only the person whose call it
 * is can give: their own program tells them.
 */
export function notifiedMessage(
  row: AuditRow,
  wanted: readonly NotifiedEvent[],
  base: string,
): NotifiedMessage | null {
  const event = eventOf(row)
  const { detail, recorded_at: at } = row
  if (event === null || !wanted.includes(event) || detail.approver === 'person') return null
  const expiry = event === 'approval.requested' ? Date.parse(nameIn(detail, 'expires_at') ?? '') : Number.NaN
  return {
    ...{ event, at, until: Number.isNaN(expiry) ? Date.parse(at) + TRIED_MS : expiry },
    ...wordsOf(event, row, detail),
    link: base + pageOf(event, detail),
    tool: nameIn(detail, 'tool') ?? row.tool,
    principal: nameIn(detail, 'subject') ?? nameIn(detail, 'principal'),
  }
}

const nameIn = (detail: UnknownRecord, member: string): string | null => {
  const value = detail[member]
  return typeof value === 'string' ? value.slice(0, MAX_NAME) : null
}

function wordsOf(event: NotifiedEvent, row: AuditRow, detail: UnknownRecord): Pick<NotifiedMessage, 'text'> {
  const tool = nameIn(detail, 'tool') ?? 'a tool'
  const who = nameIn(detail, 'subject') ?? 'somebody'
  const limit = isObject(detail.limit) ? nameIn(detail.limit, 'name') : nameIn(detail, 'name')
  const WORDS: Readonly<Record<NotifiedEvent, string>> = {
    'approval.requested': `A call of ${tool} by ${who} waits for an approval until ${nameIn(detail, 'expires_at')}.`,
    'approval.approved': `A call of ${tool} by ${who} was approved by ${row.principal_id}.`,
    'approval.declined': `A call of ${tool} by ${who} was declined by ${row.principal_id}.`,
    'approval.expired': `A call of ${tool} by ${who} was approved by nobody in time.`,
    tool_quarantined: `The definition of ${row.tool ?? 'a tool'} has changed: it waits for an approval.`,
    'limit.alert': `${String(detail.step)} % of the limit ${limit ?? ''} is used.`,
    'stop.begun': `Calls are stopped by ${row.principal_id}.`,
    'stop.ended': 'A stop has ended.',
  }
  return { text: escapeHidden(WORDS[event]) }
}

function pageOf(event: NotifiedEvent, detail: UnknownRecord): string {
  const id = encodeURIComponent(nameIn(detail, 'approval') ?? '')
  if (event.startsWith('approval.')) return `/proxy/approvals/${id}`
  if (event === 'tool_quarantined')
    return `/proxy/tools/${encodeURIComponent(nameIn(detail, 'resource_id') ?? '')}`
  return event === 'limit.alert' ? '/proxy/limits' : '/proxy'
}

/** A message as one target gets it. */
export interface PostedMessage {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Writes a message for a target. `id`: the same however often it is sent. `now`: ms since the epoch. */
export function postedMessage(
  target: NotifyTarget,
  message: NotifiedMessage,
  id: string,
  now: number,
): PostedMessage {
  const json = { 'content-type': 'application/json' }
  if (target.format === 'slack') return { headers: json, body: JSON.stringify(slackBody(message)) }
  const { event, at, link, tool, principal, text } = message
  const body = JSON.stringify({ type: event, timestamp: at, data: { text, link, tool, principal } })
  const seconds = String(Math.floor(now / 1000))
  return {
    headers: {
      ...json,
      'webhook-id': id,
      'webhook-timestamp': seconds,
      'webhook-signature': signatureOf(target.secret, `${id}.${seconds}.${body}`),
    },
    body,
  }
}

/** Signs as Standard Webhooks does: `v1`, HMAC-SHA-256 by the decoded secret. */
const signatureOf = (secret: string, text: string): string =>
  `v1,${createHmac('sha256', Buffer.from(secret.replace(/^whsec_/, ''), 'base64'))
    .update(text)
    .digest('base64')}`

// Slack reads these three as its own marks.
const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const slackBody = ({ text, link }: NotifiedMessage) => ({
  text: escaped(text),
  blocks: [
    { type: 'section', text: { type: 'mrkdwn', text: escaped(text) } },
    { type: 'section', text: { type: 'mrkdwn', text: `<${escaped(link)}|Read it>` } },
  ],
})

/** Names the message of a row to one target, for good: whoever gets it twice knows. */
export const messageId = (reader: string, stream: string, seq: number): string =>
  `msg_${hash('sha256', `${reader} ${stream}:${seq}`).slice(0, 32)}`
