import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { HOSTILE_SERVERS } from '../../siege/hostile-server.ts'
import { ADMIN_SECRET, ask, type Json, scratch, writeFiles } from '../gateway.ts'
import { environment } from '../process.ts'
import { NODE_COMPILE_CACHE } from '../run.ts'
import type { Ground, Sent } from './sender.ts'

/** What became of an item. */
export interface Took extends Sent {
  /** The longest that it held up the gateway's loop, without the garbage collector's pauses and with them. ms. */
  readonly ownMs: number
  readonly worstMs: number
}

const ROOT = join(import.meta.dirname, '../../..')

/**
 * A gateway as a process of its own, before hostile upstreams in another one. Returns a function that has an item of the
 * corpus sent by a third one, and tells how long it held up the loop: nothing else runs on that.
 */
export async function besieged(t: Test): Promise<(item: string, again: number) => Promise<Took>> {
  const hostile = await started(t, 'test/siege/hostile-server.ts')
  const directory = await scratch(t)
  const env = await environment(directory, hostile.url)
  const files = {
    '50-llm.yaml': provider(hostile.url),
    '60-mcp.yaml': 'plugin: mcp\nrefresh_interval_s: 0\n',
  }
  await writeFiles(env.MCP_PROXY_PLUGINS_DIR ?? '', files, hostile.url)
  const gateway = await started(t, 'proxy/main.ts', ['--import', join(import.meta.dirname, 'measure.ts')], {
    ...env,
    MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true',
    MCP_PROXY_LOG_LEVEL: 'warn',
  })
  const sender = fork(join(import.meta.dirname, 'sender.ts'))
  t.teardown(() => sender.kill('SIGKILL'))
  sender.send({ ground: await settle(gateway.url, hostile.url) })
  return async (item, again) => {
    await heard(gateway.child, 'begin')
    // Only the sender speaks here, and only when it has been told an item.
    const sent = (await heard(sender, { item, again })) as Sent
    const { ownMs, worstMs } = (await heard(gateway.child, 'end')) as Took
    return { ...sent, ownMs, worstMs }
  }
}

/** Tells a child something and resolves with what it says. */
async function heard(child: ChildProcess, said: object | string): Promise<unknown> {
  const answered = once(child, 'message')
  child.send(said)
  const [answer] = await answered
  return answer
}

/** Starts a server of ours, which says its URL in a line. */
async function started(t: Test, file: string, execArgv: string[] = [], env: Record<string, string> = {}) {
  const child = fork(join(ROOT, file), {
    execArgv,
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...env },
  })
  t.teardown(async () => {
    const ended = once(child, 'exit')
    if (child.kill('SIGKILL')) await ended
  })
  let said = ''
  for await (const piece of child.stdout ?? []) {
    said += String(piece)
    const url = /"msg":"ready","url":"([^"]+)"/.exec(said)?.[1]
    // Both say https, and the upstreams speak http.
    if (url)
      return {
        child,
        url: file.startsWith('proxy') ? url : url.replace('https://localhost', 'http://127.0.0.1'),
      }
  }
  throw new Error(`${file} did not start: ${said}`)
}

async function settle(url: string, hostileUrl: string): Promise<Ground> {
  const agent = new Agent({ rejectUnauthorized: false })
  const post = async (path: string, body: object): Promise<Json> => {
    const asked = { body, agent, headers: { 'x-admin-secret': ADMIN_SECRET } }
    const { status, json, text } = await ask(`${url}/v1/admin${path}`, 'POST', asked)
    if (status !== 201) throw new Error(`${path}: ${status} ${text}`)
    return json
  }
  const enroll = async (agent_name: string, capabilities: readonly string[]) => {
    const made = await post('/agents', { agent_name, capabilities })
    return { cert: made.cert_chain_pem, key: made.private_key_pem }
  }
  const bot = await enroll('bot', ['llm.chat', 'mcp.tools.call'])
  const empty = await enroll('empty', [])
  const resources: Record<string, string> = {}
  for (const name of HOSTILE_SERVERS) {
    const { resource_id } = await post('/mcp-resources', { name, endpoint_url: `${hostileUrl}/${name}` })
    await post('/mcp-resources/bindings', { agent_id: 'acme::bot', resource_id })
    resources[name] = resource_id
  }
  return { port: Number(new URL(url).port), secret: ADMIN_SECRET, identities: { bot, empty }, resources }
}

const provider = (url: string): string => `plugin: llm
default_provider: hostile
providers:
  - name: hostile
    dialect: openai
    base_url: ${url}/v1
    api_key: sk-test
    models: ["hostile-*"]
`
