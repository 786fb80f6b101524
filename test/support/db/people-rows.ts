import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import {
  BOT,
  binding,
  changed,
  decided,
  decidedTool,
  JKT,
  loaded,
  note,
  resource,
  started,
} from './history.ts'

/** Rows about calls without a certificate (docs/ledger.md#rule): those that follow, and those that do not. */

const HELD = ['files.use', 'files.write', 'llm.chat', 'mcp.prompts.get', 'mcp.tools.list']
const LATER = '2999-01-01T00:00:00.000Z'
const OTHER = 'acme::other'

/** A principal that is bound to a server whose tools a token alone may call, but for `write`. */
const stage = (server: JsonObject = {}, configuration: JsonObject = {}): readonly LedgerEntry[] => [
  started,
  loaded(configuration),
  changed('agent.created', 1, { capabilities: HELD }),
  changed('agent.created', 1, { subject: OTHER, thumbprints: [] }),
  resource('created', 1, {
    ...{
      pinned: [
        ['read', 'd1'],
        ['write', 'd2'],
      ],
      min_proof: 'none',
      tool_min_proof: { write: 'key' },
    },
    ...server,
  }),
  binding('created'),
]

const CLIENT = { host: 'claude.ai', id_sha256: 'c'.repeat(64), kind: 'cimd' }

export const issued = (grant: string, more: JsonObject = {}): LedgerEntry =>
  note('grant.issued', {
    ...{ subject: BOT, grant, client: CLIENT, kind: 'code', scope: null, amr: ['pwd'] },
    ...{ resource: 'https://people.example/v1/mcp', bound: 'none', jkt: null, expires_at: LATER },
    ...more,
  })

const keyed = (grant: string, more: JsonObject = {}) => issued(grant, { bound: 'key', jkt: JKT, ...more })
const ended = (grant: string, why = 'person', subject = BOT): LedgerEntry =>
  note('grant.ended', { subject, grant, why })

type CallValues = NonNullable<Parameters<typeof decidedTool>[1]>

const bare = ({ authority = {}, more = {}, ...values }: CallValues = {}): CallValues => ({
  ...{ cert_thumbprint: null, dpop_jkt: null, ...values },
  more: { client: CLIENT, ...more },
  authority: { bound: 'none', grant: 'grt_1', ...authority },
})
const call = (id: number, values: CallValues = {}): LedgerEntry => decidedTool(id, bare(values))
const byKey = (id: number, { authority = {}, ...values }: CallValues = {}): LedgerEntry =>
  call(id, { dpop_jkt: JKT, ...values, authority: { bound: 'key', ...authority } })
const chat = (id: number, values: CallValues = {}): LedgerEntry => decided(id, bare(values))
const refused = (reason: string, more: JsonObject = {}) =>
  ({ status: 'denied', more: { reason, ...more } }) as const
const write = { tool: 'files.write', authority: { pin: 'd2' } } as const
const list = { action: 'mcp_tools_list', tool: null, authority: { demanded: ['mcp.tools.list'] } } as const
const summed = { summarised: { count: 3, since: 'x', until: 'x', digest: 'x' } }

export const PEOPLE_FOLLOW: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a token alone, where an operator has opened the tool for it': [...stage(), issued('grt_1'), call(1)],
  'a key, where a key is asked for': [...stage(), keyed('grt_1'), byKey(1, write)],
  'a token alone, where a key is asked for': [
    ...stage(),
    issued('grt_1'),
    call(1, { ...refused('proof_too_weak'), ...write }),
  ],
  'a server that says nothing demands a certificate': [
    ...stage({ min_proof: 'certificate', tool_min_proof: {} }),
    keyed('grt_1'),
    byKey(1, refused('proof_too_weak')),
  ],
  'the built-in tool demands a certificate': [
    ...stage(),
    keyed('grt_1'),
    decided(1, {
      ...bare({ authority: { bound: 'key', demanded: ['http.get'] } }),
      ...{ action: 'mcp_tools_call', tool: 'http.get', dpop_jkt: JKT, status: 'denied' },
      more: { reason: 'proof_too_weak', path: '/v1/mcp' },
    }),
  ],
  'a tool’s own is asked in place of the server’s, both ways': [
    ...stage({ min_proof: 'certificate', tool_min_proof: { read: 'none' } }),
    issued('grt_1'),
    call(1),
    call(2, { ...refused('proof_too_weak'), ...write }),
  ],
  'a list, of which what is too much is left out': [
    ...stage({ min_proof: 'certificate', tool_min_proof: {} }),
    issued('grt_1'),
    decided(1, bare({ ...list, more: { path: '/v1/mcp' } })),
  ],
  'prompts of a server that demands more': [
    ...stage({ min_proof: 'key' }),
    issued('grt_1'),
    call(1, {
      ...refused('proof_too_weak', { path: '/v1/mcp/files' }),
      ...{ action: 'mcp_prompts_get', tool: null, authority: { demanded: ['mcp.prompts.get'], pin: 'd1' } },
    }),
  ],
  'a key that did not sign': [
    ...stage(),
    keyed('grt_1'),
    byKey(1, { ...refused('proof_required'), dpop_jkt: null }),
  ],
  'the same, in a flood': [
    ...stage(),
    keyed('grt_1'),
    byKey(1, { ...refused('proof_required', summed), dpop_jkt: null, request_id: null }),
  ],
  'a grant of a part of what is held': [
    ...stage(),
    issued('grt_1', { scope: ['files.use', 'llm.chat'] }),
    call(1, { authority: { scope: ['files.use'] } }),
    call(2, {
      ...refused('capability_missing', { required_capability: 'files.use' }),
      authority: { scope: ['llm.chat'] },
    }),
  ],
  'a proof mode that asks certificates for a key asks nothing here': [
    ...stage({}, { egress_dpop_mode: 'required' }),
    issued('grt_1'),
    call(1, { authority: { mode: { egress_dpop_mode: 'required', no_downgrade: false } } }),
  ],
  'LLM calls, where the door is open to them': [
    ...stage({}, { people: { llm: 'none' } }),
    issued('grt_1'),
    chat(1),
  ],
  'LLM calls, where it takes a key, or none': [
    ...stage({}, { people: { llm: 'key' } }),
    issued('grt_1'),
    chat(1, refused('proof_too_weak')),
    loaded({ people: { llm: 'off' } }),
    chat(2, refused('proof_too_weak')),
  ],
  'a grant that is ended twice, for one that is over is forgotten': [
    ...stage(),
    ended('grt_9'),
    ended('grt_9'),
  ],
  'certificates and grants side by side': [
    ...stage(),
    issued('grt_1'),
    decidedTool(1),
    call(2),
    decidedTool(3, write),
  ],
}

export const PEOPLE_CONTRADICT: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a call before its grant': [...stage(), call(1)],
  'a call after the end of its grant': [...stage(), issued('grt_1'), ended('grt_1'), call(1)],
  'a call by the grant of somebody else': [...stage(), issued('grt_1', { subject: OTHER }), call(1)],
  'a call by a grant that has expired': [
    ...stage(),
    issued('grt_1', { expires_at: '2020-01-01T00:00:00.000Z' }),
    call(1),
  ],
  'a call by another key than its grant’s': [
    ...stage(),
    keyed('grt_1'),
    byKey(1, { dpop_jkt: 'x'.repeat(43) }),
  ],
  'a call by a grant of a key, without one': [...stage(), keyed('grt_1'), byKey(1, { dpop_jkt: null })],
  'a call that says a better grade than its grant has': [...stage(), issued('grt_1'), byKey(1, write)],
  'a call that says another grade': [...stage(), keyed('grt_1'), call(1, { dpop_jkt: JKT })],
  'a call with more than its grant covers': [...stage(), issued('grt_1', { scope: ['files.use'] }), call(1)],
  'a scope that its grant does not cover': [
    ...stage(),
    issued('grt_1', { scope: ['llm.chat'] }),
    call(1, { authority: { scope: ['files.use'] } }),
  ],
  'a grant, and a certificate': [...stage(), issued('grt_1'), call(1, { cert_thumbprint: 'ab'.repeat(32) })],
  'a grant without its grade': [
    ...stage(),
    issued('grt_1'),
    decidedTool(1, { cert_thumbprint: null, authority: { grant: 'grt_1' } }),
  ],
  'neither a certificate nor a grant': [...stage(), decidedTool(1, { cert_thumbprint: null })],
  'a call of less than the least proof': [...stage(), issued('grt_1'), call(1, write)],
  'a refusal for a proof that sufficed': [...stage(), issued('grt_1'), call(1, refused('proof_too_weak'))],
  'a refusal of a certificate for its grade': [...stage(), decidedTool(1, refused('proof_too_weak'))],
  'an LLM call where the door is closed to them': [...stage(), issued('grt_1'), chat(1)],
  'a server that demands a proof of no such name': stage({ min_proof: 'some' }).slice(0, -1),
  'a tool that demands one': stage({ tool_min_proof: { read: 1 } }).slice(0, -1),
  'a grant issued twice': [...stage(), issued('grt_1'), issued('grt_1')],
  'a key that is none': [...stage(), issued('grt_1', { bound: 'key' })],
  'a grant without an end': [...stage(), issued('grt_1', { expires_at: 'soon' })],
  'a grant of somebody else that is ended': [...stage(), issued('grt_1'), ended('grt_1', 'operator', OTHER)],
}
