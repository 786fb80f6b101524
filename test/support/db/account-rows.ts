import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { BOT, binding, changed, decidedTool, loaded, note, resource, started } from './history.ts'

/** Rows about accounts at MCP servers (docs/ledger.md#rule): those that follow, and those that do not. */

const OTHER = 'acme::other'
const ISSUER = 'https://login.example'

const STAGE: readonly LedgerEntry[] = [
  started,
  loaded(),
  changed('agent.created', 1, { capabilities: ['files.use'] }),
  changed('agent.created', 1, { subject: OTHER, thumbprints: [] }),
  resource('created', 1, { pinned: [['read', 'd1']] }),
  binding('created'),
]

export const connected = (account: string, more: JsonObject = {}): LedgerEntry =>
  note('upstream_account.connected', {
    ...{ subject: BOT, account, resource_id: 'mcpr_1', issuer: ISSUER, scopes: ['files'] },
    ...{ client: 'document', bound: true, issuer_subject_sha256: null },
    ...more,
  })

const ended = (account: string, why = 'person', subject = BOT): LedgerEntry =>
  note('upstream_account.ended', { subject, account, resource_id: 'mcpr_1', why })

const call = (id: number, account: unknown = 'ua_1'): LedgerEntry =>
  decidedTool(id, { more: { account } as JsonObject })

export const ACCOUNTS_FOLLOW: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a call with the account of its principal': [...STAGE, connected('ua_1'), call(1)],
  'calls with an account and without': [...STAGE, connected('ua_1'), call(1), decidedTool(2)],
  'an account in the place of another': [
    ...[...STAGE, connected('ua_1'), call(1), ended('ua_1', 'replaced'), connected('ua_2'), call(2, 'ua_2')],
  ],
  'accounts of two at one server': [
    ...[...STAGE, connected('ua_1'), connected('ua_2', { subject: OTHER }), call(1)],
    ...[ended('ua_2', 'operator', OTHER), call(2)],
  ],
  'accounts of one at two servers': [
    ...[...STAGE, connected('ua_1'), connected('ua_2', { resource_id: 'mcpr_2' }), call(1)],
  ],
  'a refusal that came after the end of its account': [
    ...[...STAGE, connected('ua_1'), ended('ua_1')],
    decidedTool(1, { status: 'denied', more: { reason: 'consent_required', account: 'ua_1' } }),
  ],
}

export const ACCOUNTS_CONTRADICT: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a call before its account': [...STAGE, call(1)],
  'a call after the end of its account': [
    ...STAGE,
    connected('ua_1'),
    ended('ua_1', 'invalid_grant'),
    call(1),
  ],
  'a call with an account that another has replaced': [
    ...[...STAGE, connected('ua_1'), ended('ua_1', 'replaced'), connected('ua_2'), call(1)],
  ],
  'a call with the account of somebody else': [...STAGE, connected('ua_1', { subject: OTHER }), call(1)],
  'a call with an account at another server': [
    ...STAGE,
    connected('ua_1', { resource_id: 'mcpr_2' }),
    call(1),
  ],
  'an account that is no name': [...STAGE, connected('ua_1'), call(1, 1)],
  'an account that is connected twice': [...STAGE, connected('ua_1'), connected('ua_1')],
  'a second account at one server': [...STAGE, connected('ua_1'), connected('ua_2')],
  'an account without an issuer': [...STAGE, connected('ua_1', { issuer: null })],
  'scopes that are none': [...STAGE, connected('ua_1', { scopes: 'files' })],
  'an end of no account': [...STAGE, ended('ua_1')],
  'an end of an account of somebody else': [...STAGE, connected('ua_1'), ended('ua_1', 'person', OTHER)],
}
