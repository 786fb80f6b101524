import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DEFAULT_TIMERS } from '../../../proxy/http/server.ts'

const ROOT = join(import.meta.dirname, '../../..')

/** The limits that pages state: `says` finds the numbers of a sentence, `is` has them as the code does. */
export interface StatedLimit {
  readonly page: string
  /** One group for each number. Blanks stand for line ends too. */
  readonly says: RegExp
  readonly is: readonly number[]
}

/** Reads a number that a source declares as a constant, or as a member of one. Throws if there is none. */
function constant(file: string, name: string, unit = 1): number {
  const text = readFileSync(join(ROOT, file), 'utf8')
  const found = new RegExp(String.raw`\b${name}(?:: | = )([\d_]+(?: [*/] [\d_]+)*)`).exec(text)?.[1]
  if (found === undefined) throw new Error(`${file} has no number ${name}`)
  const [first = '', ...rest] = found.replaceAll('_', '').split(/ (?=[*/])/)
  const value = rest.reduce(
    (left, term) => (term.startsWith('*') ? left * Number(term.slice(2)) : left / Number(term.slice(2))),
    Number(first),
  )
  return value / unit
}

/** Reads the default of an option of an operator's file. */
function option(schema: string, ...path: readonly string[]): number {
  const text = readFileSync(join(ROOT, `docs/schema/${schema}.schema.json`), 'utf8')
  const at = path.reduce(
    (value, key) => value.properties?.[key] ?? value.items?.properties?.[key],
    JSON.parse(text),
  )
  if (typeof at?.default !== 'number') throw new Error(`${schema} has no default of ${path.join('.')}`)
  return at.default
}

/** Reads the lowest Node that a package asks for. */
const version = (file: string): number =>
  Number(/["']?node["']?: ["']>=(\d+\.\d+)/.exec(readFileSync(join(ROOT, file), 'utf8'))?.[1])

const S = 1_000
const MINUTE = 60 * S
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const KIB = 1_024
const MIB = 1_024 * KIB

const PROTOCOL: readonly Omit<StatedLimit, 'page'>[] = [
  {
    says: /(\w+) pipelined requests are served at once/g,
    is: [constant('proxy/http/framing.ts', 'MAX_UNDER_WAY')],
  },
  {
    says: /the others wait, on up to (\d+) connections/g,
    is: [constant('proxy/http/framing.ts', 'MAX_WAITING')],
  },
  {
    says: /send (\d+) KiB and (\w+) certificates/g,
    is: [
      constant('proxy/tls/client-flight.ts', 'MAX_FLIGHT', KIB),
      constant('proxy/tls/client-flight.ts', 'MAX_CERTIFICATES'),
    ],
  },
  { says: /One JSON object of at most (\d+) MiB/g, is: [constant('proxy/pipelines.ts', 'LLM_BODY_LIMIT')] },
  {
    says: /JSON-RPC 2.0 message of at most (\d+) MiB/g,
    is: [constant('proxy/pipelines.ts', 'MCP_BODY_LIMIT')],
  },
  {
    says: /takes at most (\d+) KiB, and is 409/g,
    is: [constant('proxy/pipelines.ts', 'SETUP_BODY_LIMIT', KIB)],
  },
  {
    says: /at most (\d+) KiB: \| Parameter/g,
    is: [constant('proxy/auth/token-request.ts', 'BODY_LIMIT', KIB)],
  },
  { says: /After (\w+) wrong secrets/g, is: [constant('plugins/secrets/throttle.ts', 'MAX_FAILURES')] },
  {
    says: /the right one within (\d+) days/g,
    is: [constant('plugins/secrets/recognised-senders.ts', 'RECOGNISED_MS', DAY)],
  },
  { says: /set has at most (\d+) tokens/g, is: [constant('db/capabilities.ts', 'MAX_TOKENS')] },
  { says: /Certificates last (\d+) days/g, is: [constant('proxy/admin/principals/enroll.ts', 'LEAF_DAYS')] },
  { says: /default `rotation_grace_hours`: (\d+)/g, is: [option('pin', 'rotation_grace_hours')] },
  { says: /There are at most (\d+)\./g, is: [constant('proxy/admin/keys/cas.ts', 'MAX_CAS')] },
  { says: /names up to (\d+) agents/g, is: [constant('db/principals/trusted-cas.ts', 'MAX_NAMED')] },
  {
    says: /At most (\d+) pages of the ledger are read at once \((\d+) by one operator\), (\d+) exports \((\d+)\), (\d+) verifications \((\d+)\) and (\d+) packs of evidence \((\d+)\)/g,
    is: ['pages', 'exports', 'verifications', 'evidence'].flatMap((purpose) => [
      constant('proxy/admin/operation/ledger-places.ts', String.raw`${purpose}: \{ own: \d+, all`),
      constant('proxy/admin/operation/ledger-places.ts', String.raw`${purpose}: \{ own`),
    ]),
  },
  { says: /at most (\d+) s → 200/g, is: [constant('proxy/admin/mcp/one-resource.ts', 'MAX_READ_MS', S)] },
  {
    says: /the first (\d+) of them, each with its `reason`/g,
    is: [constant('proxy/mcp/upstream/tools.ts', 'MAX_TOLD')],
  },
  {
    says: /at most (\d+) levels, ([\d,]+) members, ([\d,]+) objects and arrays/g,
    is: ['MAX_SCAN_DEPTH', 'MAX_SCAN_MEMBERS', 'MAX_SCAN_CONTAINERS'].map((name) =>
      constant('plugins/json-body/scan.ts', name),
    ),
  },
  {
    says: /more than ([\d,]+) characters\. `model`/g,
    is: [constant('plugins/json-body/scan.ts', 'MAX_SCAN_TOKEN')],
  },
  {
    says: /at most ([\d,]+) outermost members/g,
    is: [constant('plugins/json-body/json-body.ts', 'MAX_OUTERMOST')],
  },
  {
    says: /any text of more than ([\d,]+) characters there/g,
    is: [constant('proxy/llm/routing.ts', 'MAX_TEXT')],
  },
  {
    says: /`pass_answer_headers: .{1,60} lists, (\d+) names each/g,
    is: [constant('proxy/llm/options.ts', 'MAX_PASSED')],
  },
  {
    says: /are longer than (\d+) KiB, take/g,
    is: [constant('proxy/llm/upstream/words.ts', 'MAX_BODY', KIB)],
  },
  { says: /A message is cut at ([\d,]+)/g, is: [constant('proxy/egress/error-words.ts', 'MAX_MESSAGE')] },
  {
    says: /is longer than (\d+) MiB \| its own/g,
    is: [constant('proxy/llm/refused-answer.ts', 'MAX_ERROR_BODY', MIB)],
  },
  {
    says: /`first_byte_timeout_ms` and `idle_timeout_ms` are (\d+) s each/g,
    is: [constant('proxy/llm/options.ts', 'MAX_SILENCE_MS', S)],
  },
  { says: /Connection.{0,20}idle is kept for (\d+) s/gi, is: [DEFAULT_TIMERS.keepAliveMs / S] },
  { says: /Keep-Alive: timeout=(\d+)/g, is: [DEFAULT_TIMERS.keepAliveMs / S] },
  {
    says: /connect_timeout_ms: (\d+) first_byte_timeout_ms/g,
    is: [option('llm', 'providers', 'connect_timeout_ms')],
  },
  {
    says: /A JSON answer of at most (\d+) KiB/g,
    is: [constant('proxy/llm/dialects/statements.ts', 'PARSED_WHOLE', KIB)],
  },
  { says: /waits for it for (\d+) s at most/g, is: [constant('proxy/llm/models.ts', 'MAX_WAIT_MS', S)] },
  {
    says: /asked every (\w+) minutes, by no caller/g,
    is: [constant('proxy/tasks/refresh-models.ts', 'INTERVAL_MS', MINUTE)],
  },
  {
    says: /up to (\d+), (\d+) MiB and ([\d,]+) models/g,
    is: [
      constant('proxy/llm/upstream/model-list.ts', 'MAX_PAGES'),
      constant('proxy/llm/upstream/model-list.ts', 'MAX_LIST', MIB),
      constant('proxy/llm/catalogue.ts', 'MAX_MODELS'),
    ],
  },
  {
    says: /honours it, for (\d+) hours/g,
    is: [constant('proxy/mcp/state/shared-sessions.ts', 'LIFE_MS', HOUR)],
  },
  {
    says: /its id is up to ([\d,]+) characters/g,
    is: [constant('proxy/mcp/state/shared-sessions.ts', 'MAX_ID')],
  },
  {
    says: /there are at most ([\d,]+) values/g,
    is: [constant('proxy/mcp/protocol/json-text.ts', 'MAX_VALUES')],
  },
  {
    says: /and data of up to (\d+) KiB/g,
    is: [constant('proxy/mcp/handlers/rewrite.ts', 'MAX_ERROR_DATA', KIB)],
  },
  {
    says: /waits for (\w+) minutes meanwhile, for (\d+) calls of one principal/g,
    is: [
      constant('proxy/mcp/handlers/parked-calls.ts', 'PARKED_MS', MINUTE),
      constant('proxy/mcp/handlers/parked-calls.ts', 'MAX_OF_PRINCIPAL'),
    ],
  },
  {
    says: /gives up after (\w+) questions/g,
    is: [constant('proxy/mcp/upstream/resumption.ts', 'MAX_IDLE_RESUMES')],
  },
  {
    says: /has at most (\d+) KiB; in a longer/g,
    is: [constant('proxy/mcp/protocol/members.ts', 'MAX_REWRITTEN_BYTES', KIB)],
  },
  {
    says: /At most ([\d,]+) names of at most (\d+) characters/g,
    is: ['MAX_FOLDED_NAMES', 'MAX_FOLDED_NAME'].map((name) =>
      constant('proxy/mcp/protocol/loose-name.ts', name),
    ),
  },
  {
    says: /At most (\w+) redirects, each judged again; (\d+) s; (\d+) MiB/g,
    is: [
      constant('proxy/mcp/http-get/fetch.ts', 'MAX_REDIRECTS'),
      option('mcp', 'http_get', 'timeout_ms') / S,
      option('mcp', 'http_get', 'max_bytes') / MIB,
    ],
  },
  {
    says: /One principal has (\d+) fetches at once, all together (\d+)/g,
    is: ['own', 'own: 16, all'].map((name) => constant('proxy/mcp/http-get/tool.ts', name)),
  },
  {
    says: /seconds, at most (\d+); more counts/g,
    is: [constant('proxy/auth/token-keys.ts', 'TOKEN_LIFE_MAX_S')],
  },
  {
    says: /more than (\w+) requests a minute/g,
    is: [constant('proxy/admin/principals/renew.ts', 'MAX_RENEWALS_PER_MINUTE')],
  },
  {
    says: /has (\d+) tokens a minute \((\d+) while/g,
    is: ['MAX_TOKENS_PER_MINUTE', 'MAX_TOKENS_PER_MINUTE_LOW'].map((name) =>
      constant('proxy/auth/token-quota.ts', name),
    ),
  },
  { says: /a JWT of at most ([\d,]+) bytes/g, is: [constant('plugins/dpop/proof.ts', 'PROOF_MAX_BYTES')] },
  {
    says: /from (\d+) s ago to (\d+) s ahead/g,
    is: ['PROOF_AGE_S', 'PROOF_AHEAD_S'].map((name) => constant('plugins/dpop/proof.ts', name)),
  },
  { says: /handed out for (\d+) s/g, is: [constant('plugins/dpop/dpop.ts', 'STEP_S')] },
  {
    says: /may be (\d+) s ahead, by its challenge/g,
    is: [constant('proxy/auth/login-challenge.ts', 'ASSERTION_AHEAD_S')],
  },
  {
    says: /"expires_in": (\d+), "agent_id"/g,
    is: [constant('proxy/auth/login-challenge.ts', 'CHALLENGE_S')],
  },
  { says: /`iat` at most (\d+) s ago/g, is: [constant('proxy/auth/login-challenge.ts', 'ASSERTION_S')] },
]

const LEDGER: readonly Omit<StatedLimit, 'page'>[] = [
  { says: /A text has at most ([\d,]+) UTF-16/g, is: [constant('db/ledger/record/draft.ts', 'TEXT_LIMIT')] },
  {
    says: /A leaf has at most ([\d,]+) bytes, and `detail` at most (\d+) levels/g,
    is: ['LEAF_LIMIT', 'DEPTH_LIMIT'].map((name) => constant('db/ledger/record/draft.ts', name)),
  },
  { says: /In it the first (\d+) are rows/g, is: [constant('plugins/audit/summaries.ts', 'OWN_ROWS')] },
  {
    says: /beyond (\d+) of these in a minute/g,
    is: [constant('plugins/audit/summaries.ts', 'MAX_AUTHORITIES')],
  },
  { says: /No more than ([\d,]+) kinds/g, is: [constant('plugins/audit/summaries.ts', 'MAX_KINDS')] },
  { says: /At most ([\d,]+) outcomes wait/g, is: [constant('plugins/audit/audit.ts', 'MAX_OWED')] },
  {
    says: /writes (\d+) seconds after its decision/g,
    is: [constant('plugins/audit/audit.ts', 'LONG_MS', S)],
  },
  {
    says: /states them in more than (\d+) KiB/g,
    is: [constant('proxy/llm/dialects/member-picker.ts', 'MAX_VALUE', KIB)],
  },
  { says: /rows, each of at most (\d+) tools/g, is: [constant('db/mcp/authority.ts', 'MAX_TOOLS_PER_ROW')] },
  { says: /of at most (\d+) units/g, is: [constant('db/ledger/record/ledger.ts', 'MAX_BATCH')] },
  { says: /40-audit.yaml`, default ([\d,]+)\)/g, is: [option('audit', 'queue_limit')] },
  {
    says: /up to ([\d,]+) rows\. The first start/g,
    is: [constant('db/ledger/counts/store.ts', 'MAX_ROWS_PER_COUNT')],
  },
  { says: /verifies the last ([\d,]+) rows/g, is: [constant('db/sqlite/ledger/store.ts', 'TAIL')] },
  {
    says: /Sign-ins beyond (\w+) a minute/g,
    is: [constant('proxy/operators/sessions/open.ts', 'MAX_SIGN_INS')],
  },
  {
    says: /one row names at most (\d+)/g,
    is: [constant('proxy/admin/principals/trusted-cas.ts', 'PORTION')],
  },
  { says: /the principal's last (\d+), so/g, is: [constant('db/ledger/authority/replay.ts', 'MAX_STATES')] },
  {
    says: /At most ([\d,]+) bytes: a TimeStampResp/g,
    is: [constant('certs/timestamps/stamp.ts', 'STAMP_LIMIT')],
  },
  // The first judgement is one of them.
  { says: /after (\w+) judgements/g, is: [constant('plugins/plugin.ts', 'MAX_JUDGEMENTS') + 1] },
]

const MCP: readonly Omit<StatedLimit, 'page'>[] = [
  { says: /Tools are read again every (\w+) minutes/g, is: [option('mcp', 'refresh_interval_s') / 60] },
  {
    says: /could not be read after (\d+) seconds/g,
    is: [constant('proxy/tasks/refresh-mcp.ts', 'RETRY_MS', S)],
  },
  {
    says: /within (\d+) s of a change/g,
    is: [constant('proxy/mcp/upstream/connections.ts', 'SECRET_AGE_MS', S)],
  },
  {
    says: /larger than (\d+) KiB, can be read/g,
    is: [constant('proxy/mcp/upstream/tools.ts', 'MAX_DEFINITION', KIB)],
  },
  {
    says: /after ([\d,]+) tools, (\d+) MiB of definitions, or (\d+) pages/g,
    is: [
      constant('proxy/mcp/upstream/tools.ts', 'MAX_TOOLS'),
      constant('proxy/mcp/upstream/tools.ts', 'MAX_LIST', MIB),
      constant('proxy/mcp/upstream/tools.ts', 'MAX_PAGES'),
    ],
  },
]

const OPERATING: readonly Omit<StatedLimit, 'page'>[] = [
  {
    says: /`MCP_PROXY_DISK_RESERVE_MIB` \| (\d+) /g,
    is: [constant('proxy/tasks/watch-disk.ts', 'RESERVE_BYTES', MIB)],
  },
  {
    says: /Every (\w+) seconds the gateway looks how much/g,
    is: [constant('proxy/tasks/watch-disk.ts', 'EVERY_MS', S)],
  },
  {
    says: /lacked a checkpoint for (\w+) minutes/g,
    is: [constant('proxy/proofs/anchors/standing.ts', 'LATE_MS', MINUTE)],
  },
  { says: /(\w+) wrong secrets a minute/gi, is: [constant('plugins/secrets/throttle.ts', 'MAX_FAILURES')] },
  {
    says: /waits (\d+) seconds at most for an MCP server/g,
    is: [constant('proxy/admin/mcp/one-resource.ts', 'MAX_READ_MS', S)],
  },
  {
    says: /\(RLIMIT_NOFILE\) less (\d+) for itself/g,
    is: [constant('proxy/http/descriptors.ts', 'RESERVED_DESCRIPTORS')],
  },
  {
    says: /alone has (\d+) connections of its own/g,
    is: [constant('proxy/http/descriptors.ts', 'ADMIN_CONNECTIONS')],
  },
  {
    says: /providers of the last (\d+) seconds/g,
    is: [constant('proxy/egress/agent.ts', 'POOL_IDLE_MS', S)],
  },
  {
    says: /`too_many_handshakes` \(more than ([\d,]+) at once/g,
    is: [constant('proxy/tls/handshakes.ts', 'MAX_WAITING')],
  },
  {
    says: /A certificate lives for (\d+) days/g,
    is: [constant('proxy/admin/principals/enroll.ts', 'LEAF_DAYS')],
  },
  {
    says: /stored it, within (\w+) seconds/g,
    is: [constant('proxy/federation/publish.ts', 'TIMEOUT_MS', S)],
  },
  { says: /From (\d+) refusals of one kind/g, is: [constant('plugins/audit/summaries.ts', 'OWN_ROWS')] },
  {
    says: /gateway: (\d+) that read, one for the ledger/g,
    is: [constant('db/postgres/connection.ts', 'MAX_READER_CONNECTIONS')],
  },
]

const OTHERS: readonly StatedLimit[] = [
  { page: 'README.md', says: /install Node ≥ ([\d.]+) yourself/g, is: [version('package.json')] },
  { page: 'CONTRIBUTING.md', says: /must then say ([\d.]+) or/g, is: [version('package.json')] },
  { page: 'docs/client.md', says: /runs on Node ([\d.]+) or/g, is: [version('scripts/client-package.ts')] },
  {
    page: 'docs/dashboard.md',
    says: /on (\w+) pages at once/g,
    is: [constant('proxy/dashboard/activity/followers.ts', 'MAX_PER_OPERATOR')],
  },
  {
    page: 'docs/dashboard.md',
    says: /a process serves (\d+); more/g,
    is: [constant('proxy/dashboard/activity/followers.ts', 'MAX_FOLLOWERS')],
  },
  {
    page: 'docs/dashboard.md',
    says: /up to ([\d,]+) for each page/g,
    is: [
      constant('proxy/dashboard/activity/calls.ts', 'ROWS') *
        constant('proxy/dashboard/activity/calls.ts', 'MAX_LEDGER_PAGES'),
    ],
  },
  {
    page: 'docs/operators.md',
    says: /A proposal is open for (\d+) hours/g,
    is: [constant('proxy/admin/conditions/propose.ts', 'OPEN_MS', HOUR)],
  },
  {
    page: 'docs/operators.md',
    says: /An operator has at most (\d+) sessions/g,
    is: [constant('db/operators/sessions.ts', 'MAX_SESSIONS_PER_OPERATOR')],
  },
  {
    page: 'docs/operators.md',
    says: /signs in (\w+) times a minute/g,
    is: [constant('proxy/operators/sessions/open.ts', 'MAX_SIGN_INS')],
  },
  {
    page: 'docs/rehearsal.md',
    says: /at most (\d+) minutes old/g,
    is: [constant('proxy/admin/conditions/rehearsed.ts', 'FRESH_MS', MINUTE)],
  },
  {
    page: 'docs/rehearsal.md',
    says: /the default is the last (\d+) days/g,
    is: [constant('proxy/admin/conditions/run.ts', 'DEFAULT_WINDOW_MS', DAY)],
  },
  {
    page: 'docs/policy.md',
    says: /has at most (\d+) characters, without control/g,
    is: [constant('plugins/policy/policy.ts', 'MAX_REASON_LENGTH')],
  },
  {
    page: 'docs/policy.md',
    says: /are (\d+) calls of the principal, or ([\d,]+) of all/g,
    is: [
      constant('plugins/policy/engine.ts', 'MAX_QUESTIONS') / 4,
      constant('plugins/policy/engine.ts', 'MAX_QUESTIONS'),
    ],
  },
  {
    page: 'docs/policy.md',
    says: /may use (\d+) MiB\. Files may have/g,
    is: [constant('plugins/policy/policy.ts', 'MAX_MEMORY_BYTES', MIB)],
  },
  {
    page: 'docs/policy.md',
    says: /Files may have (\d+) MiB each/g,
    is: [constant('plugins/policy/bundle.ts', 'MAX_FILE_BYTES', MIB)],
  },
  {
    page: 'docs/policy.md',
    says: /or more than (\d+) KiB; over HTTP/g,
    is: [constant('plugins/policy/engine.ts', 'MAX_ANSWER_BYTES', KIB)],
  },
  {
    page: 'docs/runbooks.md',
    says: /Up to (\d+) MiB of lines wait/g,
    is: [constant('proxy/telemetry/log-output.ts', 'MAX_WAITING_BYTES', MIB)],
  },
  {
    page: 'docs/runbooks.md',
    says: /takes up to (\d+) connections that read/g,
    is: [constant('db/postgres/connection.ts', 'MAX_READER_CONNECTIONS')],
  },
  {
    page: 'docs/threats.md',
    says: /lies at most (\d+) s back and (\d+) s ahead/g,
    is: ['PROOF_AGE_S', 'PROOF_AHEAD_S'].map((name) => constant('plugins/dpop/proof.ts', name)),
  },
  {
    page: 'docs/threats.md',
    says: /TCP asks after (\d+) s of silence/g,
    is: [constant('proxy/egress/agent.ts', 'TCP_PROBE_MS', S)],
  },
  {
    page: 'docs/threats.md',
    says: /`first_byte_timeout_ms`, (\d+) s by default/g,
    is: [constant('proxy/llm/options.ts', 'MAX_SILENCE_MS', S)],
  },
  {
    page: 'docs/threats.md',
    says: /At most (\d+) MiB wait, further lines/g,
    is: [constant('proxy/telemetry/log-output.ts', 'MAX_WAITING_BYTES', MIB)],
  },
  {
    page: 'docs/threats.md',
    says: /the one unused longest ends\. Own: (\d+)/g,
    is: [constant('proxy/mcp/state/sessions.ts', 'MAX_OF_PRINCIPAL')],
  },
  {
    page: 'docs/threats.md',
    says: /Sessions at MCP servers\*\* \(([\d,]+)\)\..{0,70}Own: (\d+)/g,
    is: ['MAX_SESSIONS', 'MAX_OF_PRINCIPAL'].map((name) => constant('proxy/mcp/upstream/sessions.ts', name)),
  },
  {
    page: 'docs/threats.md',
    says: /Pages that follow the ledger\*\* \((\d+)\)/g,
    is: [constant('proxy/dashboard/activity/followers.ts', 'MAX_FOLLOWERS')],
  },
  {
    page: 'docs/architecture.md',
    says: /After (\w+) judgements/g,
    is: [constant('plugins/plugin.ts', 'MAX_JUDGEMENTS') + 1],
  },
]

const ofPage = (page: string, limits: readonly Omit<StatedLimit, 'page'>[]): readonly StatedLimit[] =>
  limits.map((limit) => ({ page, ...limit }))

/** Every number of a page that the test holds to the code. */
export const LIMITS: readonly StatedLimit[] = [
  ...ofPage('docs/protocol.md', PROTOCOL),
  ...ofPage('docs/ledger.md', LEDGER),
  ...ofPage('docs/mcp.md', MCP),
  ...ofPage('docs/operating.md', OPERATING),
  ...OTHERS,
]
