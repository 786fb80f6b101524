import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent } from 'node:https'
import { Writable } from 'node:stream'
import type { Test } from 'tap'
import { readSettings } from '../../proxy/boot/settings.ts'
import { startGateway } from '../../proxy/wiring/gateway.ts'
import { ADMIN_SECRET, type Answered, ask, scratch } from './gateway.ts'
import { type Held, holdOf } from './loop-hold.ts'
import { environment } from './process.ts'

/** A gateway in a process of its own, in which nothing else runs, tap's own bookkeeping included. */
export interface MeasuredGateway {
  readonly url: string
  /** Trusts it, whoever it is. */
  readonly agent: Agent
  /** Calls the admin API with the operator's secret. */
  readonly admin: (method: string, path: string, body?: unknown) => Promise<Answered>
  /** Measures how long its loop was held at a stretch until `work` was done, as {@link holdOf} does. */
  readonly held: <T>(work: () => Promise<T>) => Promise<Held<T>>
}

/** Starts a gateway on the database at `file`. It ends with the test. */
export async function measuredGateway(t: Test, file: string): Promise<MeasuredGateway> {
  const env = await environment(await scratch(t), 'http://127.0.0.1:9')
  // Without what tap has Node import first.
  const options = { execArgv: [], env: { ...env, MCP_PROXY_DATABASE_URL: `sqlite:${file}` } }
  const child = fork(import.meta.filename, options)
  const agent = new Agent({ rejectUnauthorized: false })
  t.teardown(async () => {
    agent.destroy()
    child.disconnect()
    await once(child, 'exit')
  })
  const url = String(await answer(child))
  const admin: MeasuredGateway['admin'] = (method, path, body) =>
    ask(url + path, method, { agent, body, headers: { 'x-admin-secret': ADMIN_SECRET } })
  async function held<T>(work: () => Promise<T>): Promise<Held<T>> {
    child.send('begin')
    await answer(child)
    const value = await work()
    child.send('end')
    return { ...((await answer(child)) as Held<unknown>), value }
  }
  return { url, agent, admin, held }
}

function answer(child: ChildProcess): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new Error('the gateway has ended'))
    child.once('exit', ended)
    child.once('message', (message) => {
      child.off('exit', ended)
      resolve(message)
    })
  })
}

async function run(): Promise<void> {
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() })
  const gateway = await startGateway(readSettings(process.env, process.cwd()), { logTo: silent })
  let end = (): void => {}
  process.on('message', (message) => {
    if (message === 'end') return end()
    void holdOf(() => new Promise<void>((resolve) => (end = resolve))).then((held) => process.send?.(held))
    process.send?.('begun')
  })
  process.once('disconnect', () => void gateway.close(0))
  process.send?.(gateway.url)
}

if (process.argv[1] === import.meta.filename) await run()
