import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Client } from '@modelcontextprotocol/client'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { isObject, type JsonObject, type JsonValue } from '../../db/support/json.ts'
import { errorCode } from '../../plugins/operator-files/secret-file.ts'
import { interruption } from '../cluster/tied.ts'
import type { DemoAgent } from './calls.ts'
import { demoRow, playCalls, type SayLine } from './calls.ts'
import { type DemoGateway, startDemoGateway, startMockProvider } from './gateway.ts'
import { playAllowedCall, playMcp } from './mcp.ts'

/** The time that the last outcome rows may take, which are written after the caller has the answer. ms. */
const OUTCOMES_MS = 5_000

/** Prints the rows of the ledger as a table and verifies their chain offline, from the database file. */
async function showAudit(gateway: DemoGateway, say: (line: string) => void): Promise<void> {
  const rows = await completeRows(gateway)
  say(
    '\nThe audit ledger: decisions before anything is sent, outcomes after it, each row sealing the one before.\n',
  )
  say(line(['seq', 'who', 'action', 'status', 'sealed', 'what']))
  for (const row of rows) say(line(cells(row)))
  const database = join(gateway.directory, 'data', 'sallyport.db')
  const printed = await gateway.sallyport('verify', database)
  const verdict = printed.trim()
  if (!verdict.startsWith('whole: ')) throw new Error(`the ledger should be whole: ${verdict}`)
  say(`\n  make verify-audit FILE=${database}\n  ${verdict.replaceAll('\n', '\n  ')}`)
}

async function completeRows({ admin }: DemoGateway): Promise<readonly AuditRow[]> {
  const deadline = performance.now() + OUTCOMES_MS
  for (;;) {
    // The admin API's own shape (docs/protocol.md#audit-api).
    const { rows } = (await admin('GET', '/v1/admin/audit?order=asc&limit=1000')) as { rows: AuditRow[] }
    const open = rows.filter((row) => row.status === 'allowed' && !hasOutcome(row, rows))
    if (open.length === 0) return rows
    if (performance.now() > deadline) throw new Error(`${open.length} allowed calls have no outcome row`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const hasOutcome = ({ request_id: id, seq }: AuditRow, rows: readonly AuditRow[]): boolean =>
  rows.some((row) => row.request_id === id && row.seq > seq)

function cells(row: AuditRow): string[] {
  const who = row.principal_id ?? 'gateway'
  return [String(row.seq), who, row.action, row.status, row.row_hash.slice(0, 8), rowSummary(row)]
}

function rowSummary({ status, model, tool, detail }: AuditRow): string {
  const called = model ?? tool ?? ''
  if (status === 'allowed') return model !== null && detail.stream === true ? `${model}, streamed` : called
  if (status === 'denied') return `${called}: ${joinTexts(detail.reason, detail.required_capability)}`
  return 'http_status' in detail ? outcomeOf(detail) : tool || changeOf(detail)
}

function outcomeOf({ http_status: http, latency_ms: ms, ...detail }: JsonObject): string {
  const { tokens, result_bytes: bytes } = detail
  const { input, output }: JsonObject = isObject(tokens) ? tokens : {}
  const size = bytes === undefined ? `${text(input)} + ${text(output)} tokens` : `${text(bytes)} bytes`
  return `${text(http)}, ${size}, ${text(ms)} ms`
}

/** Returns the change that an operator, or a read of an MCP server, has made. */
function changeOf(detail: JsonObject): string {
  const { subject, name, resource, capabilities, approved, required_capability: demanded } = detail
  if (Array.isArray(capabilities)) return `${text(subject)} [${joinTexts(...capabilities)}]`
  if (detail.newly_refused !== undefined)
    return `${text(detail.newly_refused)} of ${text(detail.decisions)} calls refused`
  if (Array.isArray(approved)) return `${text(name)}: pinned ${joinTexts(...approved)}`
  if (demanded !== undefined) return `${text(name)} demands ${text(demanded ?? 'a binding only')}`
  return resource === undefined ? '' : `${text(subject)} to ${text(resource)}`
}

const joinTexts = (...values: readonly (JsonValue | undefined)[]): string =>
  values.flatMap((value) => (value === undefined ? [] : text(value))).join(' ')

const text = (value: JsonValue | undefined): string =>
  typeof value === 'string' ? value : JSON.stringify(value ?? null)

const WIDTHS = [5, 14, 31, 9, 10]

const line = (columns: readonly string[]): string =>
  `  ${columns.map((column, i) => column.padEnd(WIDTHS[i] ?? 0)).join('')}`.trimEnd()

const OPERATOR = { name: 'operator' }
const LEAST = ['llm.chat', 'mcp.tools.list', 'notes.read']

interface DemoCaller {
  readonly client: Client
  readonly agent: DemoAgent
}

/** Rehearses two sets on the agent's calls, makes the change that stops nobody, and sends a call again. */
async function playRehearsal(
  gateway: DemoGateway,
  { client, agent }: DemoCaller,
  say: SayLine,
): Promise<void> {
  const { id } = agent
  say('\nBefore capabilities are taken away, the change is rehearsed on the calls that were made.\n')
  const tooNarrow = await rehearseSet(gateway, id, ['llm.chat'], say)
  if (!tooNarrow.stops || !/ notes\.read_note +notes\.read +2 /.test(tooNarrow.out))
    throw new Error('the rehearsal should have found the calls of notes.read_note')
  const fits = await rehearseSet(gateway, id, LEAST, say)
  const [, rehearsal] = /^rehearsal (\S+)$/m.exec(fits.out) ?? []
  if (fits.stops || rehearsal === undefined) throw new Error('the least set should stop nobody')
  const change = { capabilities: LEAST }
  await gateway.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, change, { 'if-rehearsed': rehearsal })
  say(
    demoRow(
      'changed',
      OPERATOR,
      'admin API',
      `PATCH ${id} to ${JSON.stringify(LEAST)}, If-Rehearsed: ${rehearsal}`,
    ),
  )
  await playAllowedCall(client, agent, say)
}

async function rehearseSet({ rehearse }: DemoGateway, id: string, set: readonly string[], say: SayLine) {
  const args = [id, '--set', set.join(','), '--last', '1h']
  say(demoRow('asked', OPERATOR, 'sallyport', `rehearse ${args.join(' ')}`))
  const found = await rehearse(...args)
  for (const line of found.out.trimEnd().split('\n')) say(`      ${line}`)
  return found
}

function curlLines({ url, directory, adminSecret }: DemoGateway): string {
  const as = (name: string): string =>
    `--cacert ${name}/org-ca.crt --cert ${name}/agent.crt --key ${name}/agent.key`
  const chat = (name: string, more: string, body: object): string =>
    `  curl ${more}${as(name)} \\
    ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '${JSON.stringify({ model: 'gpt-demo', messages: [{ role: 'user', content: 'hello' }], ...body })}'`
  const ask = (method: string, params: object): string =>
    `  curl ${as('writer')} \\
    ${url}/v1/mcp -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \\
    -d '${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}'`
  return `
The gateway runs until Ctrl-C. In another terminal:

  cd ${directory}

  # JSON, then streamed
${chat('writer', '', {})}

${chat('writer', '-N ', { stream: true })}

  # tools: those that may be called are listed; others are refused
${ask('tools/list', {})}

${ask('tools/call', { name: 'notes.delete_note' })}

  # the guest is refused, until you grant it llm.chat
${chat('guest', '', {})}

  curl --cacert writer/org-ca.crt -X PATCH ${url}/v1/admin/agents/acme::guest/capabilities \\
    -H 'X-Admin-Secret: ${adminSecret}' -H 'content-type: application/json' \\
    -d '{"capabilities": ["llm.chat"]}'
`
}

interface DemoOptions {
  /** True: the gateway stays until SIGINT or SIGTERM. */
  readonly stay: boolean
  /** The port of the gateway. Null: 9443, or any other while that is taken. */
  readonly port: number | null
}

/**
 * Plays the demo on standard output. Rejects at the first step that goes wrong. Gateway, provider and scratch
 * directory are gone before it settles.
 */
export async function runDemo(wanted: DemoOptions): Promise<void> {
  const interrupted = interruption('the demo was stopped before its end')
  await using stage = new AsyncDisposableStack()
  try {
    await play(wanted, stage, interrupted)
  } catch (error) {
    const why: unknown = interrupted.aborted ? interrupted.reason : error
    // A reader that has enough, such as head, wants no more.
    if (errorCode(why) !== 'EPIPE') throw why
  }
}

async function play({ stay, port }: DemoOptions, stage: AsyncDisposableStack, interrupted: AbortSignal) {
  // Each step says how it went, so an interrupted demo ends at the next line, with everything it started
  // known here.
  const say = (line: string): void => {
    interrupted.throwIfAborted()
    process.stdout.write(`${line}\n`)
  }
  const started = performance.now()
  say('Sallyport demo: the main job, on this machine alone, with no key and no account.\n')

  const directory = await mkdtemp(join(tmpdir(), 'sallyport-demo-'))
  stage.defer(() => rm(directory, { recursive: true, force: true }))
  const provider = await startMockProvider()
  stage.defer(provider.stop)
  say(`  provider  ${provider.url}, a mock (aimock) that answers to one key, which the gateway has`)

  const gateway = await startDemoGateway({ directory, port, provider })
  stage.defer(gateway.stop)
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  say(`  gateway   ${gateway.url}, with a CA and an audit ledger of its own, made in ${seconds} s`)

  const writer = await playCalls(gateway, provider, stage, say)
  const client = await playMcp(gateway, writer, stage, say)
  await playRehearsal(gateway, { client, agent: writer }, say)
  await showAudit(gateway, say)
  if (!stay) return
  say(curlLines(gateway))
  await Promise.race([once(interrupted, 'abort'), gateway.ended.then(complain)])
}

function complain(why: string): never {
  throw new Error(why)
}
