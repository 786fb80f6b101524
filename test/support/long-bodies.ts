import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import { Agent, request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'

/*
 * Bodies of LLM calls that are as long as they may be and hard to read, and a process that sends them, or
 * takes them as a provider does: so that the loop of the process between the two can be measured by itself.
 */

const MIB = 1024 * 1024
const LIMIT = 32 * MIB

const call = (member: string): string => `{"model":"gpt-4o",${member}}`
const list = (length: number, item: (index: number) => string): string =>
  `[${Array.from({ length }, (_, index) => item(index)).join(',')}]`
/** A string literal that fills the body. */
const filled = (unit: string): string => {
  const room = LIMIT - Buffer.byteLength(call('"input":""'))
  return call(`"input":"${unit.repeat(Math.floor(room / Buffer.byteLength(unit)))}"`)
}
const named = (count: number, length: number, member = 'input'): string => {
  const names = Array.from(
    { length: count },
    (_, i) => `"${'n'.repeat(length - 6)}${String(i).padStart(6, '0')}":1`,
  )
  return call(`"${member}":{${names.join(',')}}`)
}

/** Bodies that are legal. */
export const LEGAL = {
  'a million numbers': () => call(`"input":${list(999_990, (i) => `0.${7919 * i}`)}`),
  'a million strings': () => call(`"input":${list(999_990, () => '"abcdefgh"')}`),
  'numbers, and a string at the end': () =>
    call(`"input":${list(900_000, (i) => `${i}.5`).slice(0, -1)},"a"]`),
  '99,000 long names': () => named(99_000, 300),
  '2,000 names of 16,000 characters': () => named(2_000, 16_000),
  '99,000 names like indices': () => call(`"input":{${list(99_000, (i) => `"${i * 997}":1`).slice(1, -1)}}`),
  '50,000 small objects': () => call(`"messages":${list(49_000, (i) => `{"role":"user","content":"${i}"}`)}`),
  '99,000 empty objects': () => call(`"input":${list(99_000, () => '{}')}`),
  'lists in lists': () => call(`"input":${list(1_500, () => `${'['.repeat(62)}${']'.repeat(62)}`)}`),
  '32 MiB of spaces': () => `{"model":"gpt-4o"${' '.repeat(LIMIT - 18)}}`,
  'a string of 32 MiB': () => filled('QUJD'),
  '32 MiB of Chinese': () => filled('漢字'),
  '32 MiB of escapes': () => filled('\\n'),
  '32 MiB of escaped quotes': () => filled('\\"'),
  '32 MiB of escaped surrogates': () => filled('\\ud83d\\ude00'),
} as const

/** Bodies that are refused. */
export const REFUSED = {
  '16 million empty lists': () => call(`"input":[${'[],'.repeat(10 * MIB)}[]]`),
  '15 million lists in lists': () =>
    call(`"input":${list(250_000, () => `${'['.repeat(60)}${']'.repeat(60)}`)}`),
  '1,600 names of 20,000 characters': () => named(1_600, 20_000),
  'metadata of 30 MiB of blanks': () => call(`"metadata":"${' '.repeat(30 * MIB)}"`),
  'metadata of 99,000 long names': () => named(99_000, 300, 'metadata'),
  '1,900 outermost names of 16,000 characters': () =>
    `{"model":"gpt-4o",${named(1_900, 16_000).slice(27, -1)}`,
  'a number of 32 MiB': () => call(`"input":${'1'.repeat(LIMIT - 40)}`),
  'a string of 32 MiB without an end': () => filled('QUJD').slice(0, -2),
  'a fault at the end of 32 MiB': () => `${filled('QUJD').slice(0, -1)},}`,
  'bad UTF-8 at the end of 32 MiB': () => `${filled('QUJD').slice(0, -3)}\xff"}`,
} as const

const toolCall = (args: string): string =>
  `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":${args}}}`

/** Calls of a tool that there is none of, at the MCP endpoint. */
export const UNKNOWN_TOOL = {
  'a tool with 8 MiB of spaces': () => toolCall(`{${' '.repeat(8 * MIB - 200)}}`),
  'a tool with 8 MiB of Chinese': () => toolCall(`{"text":"${'漢字'.repeat(1_390_000)}"}`),
  'a tool with 240,000 numbers': () => toolCall(`{"list":${list(240_000, (i) => `${i}.25`)}}`),
  'a tool with 99,000 objects': () => toolCall(`{"list":${list(98_000, (i) => `{"i":${i}}`)}}`),
} as const

const BODIES: Readonly<Record<string, () => string>> = { ...LEGAL, ...REFUSED, ...UNKNOWN_TOOL }

/** Says how a body was answered. */
export interface Sent {
  readonly status: number
  /** Of what was sent, and of what the provider got. Hex SHA-256. */
  readonly sha256: string
  readonly got: string | null
  /** The commitment that the receipt's salt opens, hex; null where there was none. */
  readonly committed: string | null
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

/** A provider that answers every call with the digest of its body. Says its port. */
function provider(): void {
  const server = createServer((req, res) => {
    const digest = createHash('sha256')
    req.on('data', (chunk: Buffer) => digest.update(chunk))
    req.on('end', () => {
      res.setHeader('content-type', 'application/json')
      res.end(JSON.stringify({ object: 'chat.completion', data: [], digest: digest.digest('hex') }))
    })
  })
  server.listen(0, '127.0.0.1', () => say({ port: (server.address() as AddressInfo).port }))
}

/** A caller: for each line, `["name", times]`, it makes a body, says so, sends it, and says what came of it. */
async function caller(port: string): Promise<void> {
  const identity = JSON.parse(process.env.IDENTITY ?? '{}')
  const agent = new Agent({ keepAlive: true, rejectUnauthorized: false, ...identity })
  for await (const line of createInterface(process.stdin)) {
    const [name, times] = JSON.parse(line) as [string, number]
    const text = BODIES[name]?.() ?? ''
    const body = Buffer.from(text, name.startsWith('bad UTF-8') ? 'latin1' : 'utf8')
    const digest = sha256(body)
    say('made')
    const path = name in UNKNOWN_TOOL ? '/v1/mcp' : '/v1/chat/completions'
    const answers = Array.from({ length: times }, () => send({ port: Number(port), agent, path }, body))
    say((await Promise.all(answers)).map((answer) => ({ ...answer, sha256: digest })))
  }
}

function send(
  to: { readonly port: number; readonly agent: Agent; readonly path: string },
  body: Buffer,
): Promise<Omit<Sent, 'sha256'>> {
  const { promise, resolve, reject } = Promise.withResolvers<Omit<Sent, 'sha256'>>()
  const options = { host: '127.0.0.1', method: 'POST', ...to }
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const req = request({ ...options, headers }, (res) => {
    let text = ''
    res.on('data', (chunk: Buffer) => {
      text += String(chunk)
    })
    res.on('end', () => {
      const salt = /, salt=([0-9a-f]{32})$/.exec(String(res.headers['audit-receipt']))?.[1]
      const committed = salt === undefined ? null : sha256(Buffer.concat([Buffer.from(salt, 'hex'), body]))
      resolve({ status: res.statusCode ?? 0, got: JSON.parse(text).digest ?? null, committed })
    })
  })
  req.on('error', reject)
  req.end(body)
  return promise
}

const say = (what: unknown): void => void process.stdout.write(`${JSON.stringify(what)}\n`)

const [, file, role, port = ''] = process.argv
if (file === import.meta.filename && role === 'provider') provider()
if (file === import.meta.filename && role === 'caller') await caller(port)
