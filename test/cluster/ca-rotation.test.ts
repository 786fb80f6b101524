import { readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { Agent } from 'node:https'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { request, Agent as UndiciAgent } from 'undici'
import { messageOf } from '../../db/support/error-message.ts'
import { createFetch, GatewayRefusal, readIdentity } from '../../scripts/client/client.ts'
import { keepRenewed } from '../../scripts/client/renewal/keep-renewed.ts'
import { renewIdentity } from '../../scripts/client/renewal/renew.ts'
import { followTrust } from '../../scripts/client/renewal/trust.ts'
import { startSidecar } from '../../scripts/client/sidecar.ts'
import { clientSession } from '../../scripts/client/signing/session.ts'
import { heldCall } from '../support/cluster/held-call.ts'
import { clusterStage, type Stage } from '../support/cluster/stage.ts'
import { ADMIN_SECRET, agentOf, ask, scratch } from '../support/gateway.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'
import { eventually } from '../support/settled.ts'

/** CA_AGENTS=300 takes two to three minutes. */
const AGENTS = Number(process.env.CA_AGENTS ?? 24)
const SIDECARS = 2

const PATH = '/v1/models'
const ROTATION = '/v1/admin/ca/rotation'
/** The time between two calls of an agent, and between two of its looks at the CA: 50 of each a second at most. ms. */
const [PAUSE_MS, LOOK_MS] = [Math.max(2_000, AGENTS * 20), Math.max(2_000, AGENTS * 20)]

/** One call: its status; rejects if there is no answer. */
type Caller = () => Promise<number>

interface Client {
  readonly call: Caller
  readonly close: () => unknown
}

/** What moves to the next CA by test code, with the functions of `sallyport renew`: new connections after it. */
function mover(directory: string, open: () => Client): Client {
  let client = open()
  let next = performance.now() + LOOK_MS * Math.random()
  const call: Caller = async () => {
    if (performance.now() >= next) {
      next = performance.now() + LOOK_MS
      const { ca, cert } = readIdentity(directory)
      // If it cannot tell just now it looks again later.
      if (await followTrust(directory).catch(() => false)) await renewIdentity(directory)
      const now = readIdentity(directory)
      if (now.ca !== ca || now.cert !== cert) {
        client.close()
        client = open()
      }
    }
    return client.call()
  }
  return { call, close: () => client.close() }
}

const KINDS: Readonly<Record<string, (t: Test, directory: string) => Promise<Client>>> = {
  https: async (_t, directory) =>
    mover(directory, () => {
      const { url, ca, cert, key } = readIdentity(directory)
      const agent = new Agent({ ca, cert, key, keepAlive: true, maxSockets: 1 })
      return {
        call: async () => (await ask(url + PATH, 'GET', { agent })).status,
        close: () => agent.destroy(),
      }
    }),
  undici: async (_t, directory) =>
    mover(directory, () => {
      const { url, ca, cert, key } = readIdentity(directory)
      const dispatcher = new UndiciAgent({ connect: { ca, cert, key }, connections: 1 })
      const call = async (): Promise<number> => {
        const { statusCode, body } = await request(url + PATH, { dispatcher })
        await body.dump()
        return statusCode
      }
      return { call, close: () => dispatcher.close() }
    }),
  createFetch: async (_t, directory) => {
    const call = createFetch(directory, { followCaEveryMs: LOOK_MS })
    const { url } = readIdentity(directory)
    return { call: async () => statusOf(await call(url + PATH)), close: () => {} }
  },
  sidecar: async (t, directory) => {
    const session = clientSession(readIdentity(directory), { directory })
    const sidecar = await startSidecar(session, '127.0.0.1', 0)
    const stop = new AbortController()
    const nap = (ms: number): Promise<void> =>
      sleep(Math.min(ms, LOOK_MS), undefined, { signal: stop.signal })
    void keepRenewed({ directory, notice: () => {}, signal: stop.signal, sleep: nap })
    t.teardown(async () => {
      stop.abort()
      await sidecar.close(0)
      await session.close()
    })
    return { call: async () => statusOf(await fetch(sidecar.url + PATH)), close: () => {} }
  },
}

async function statusOf(answer: Response): Promise<number> {
  await answer.arrayBuffer()
  return answer.status
}

async function enrolledDirectory(stage: Stage, root: string, name: string): Promise<string> {
  const { id, cert, key } = await stage.enroll(name)
  const directory = join(root, name)
  await mkdir(directory)
  const files = {
    'agent.crt': cert,
    'agent.key': key,
    'org-ca.crt': stage.ca,
    'gateway.json': JSON.stringify({ url: stage.door.url, agent_id: id }),
  }
  for (const [file, text] of Object.entries(files))
    await writeFile(join(directory, file), text, { mode: 0o600 })
  return directory
}

/** What became of all calls. */
interface CallResults {
  served: number
  /** Answered 503 by a machine that is too slow for all of this at once, and asked again, as SDKs do. */
  busy: number
  readonly failures: string[]
}

const isBusy = (outcome: unknown): boolean =>
  outcome === 503 || (outcome instanceof GatewayRefusal && outcome.status === 503)

/** Has an enrolled agent call until it is stopped. Resolves with what stops it, which ends with the call under way. */
async function agentAtWork(
  t: Test,
  { directory, kind, name }: { readonly directory: string; readonly kind: string; readonly name: string },
  results: CallResults,
): Promise<() => Promise<void>> {
  const client = await KINDS[kind]?.(t, directory)
  let going = true
  const work = async (): Promise<void> => {
    await sleep(PAUSE_MS * Math.random())
    while (going) {
      const outcome = await client?.call().catch((error: Error) => error)
      if (outcome === 200) results.served += 1
      else if (isBusy(outcome)) results.busy += 1
      else
        results.failures.push(
          `${name}: ${outcome instanceof Error ? messageOf(outcome.cause ?? outcome) : outcome}`,
        )
      await sleep(PAUSE_MS * (0.5 + Math.random()))
    }
    await client?.close()
  }
  const done = work()
  const stop = (): Promise<void> => {
    going = false
    return done
  }
  t.teardown(stop)
  return stop
}

const rootsIn = (directory: string): number =>
  readFileSync(join(directory, 'org-ca.crt'), 'utf8').split('BEGIN').length - 1

t.test(
  'agents of four kinds of client call without one failure while the CA is replaced on three replicas',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const stage = await clusterStage(t)
    const root = await scratch(t)
    const results: CallResults = { served: 0, busy: 0, failures: [] }
    const callers = ['https', 'undici', 'createFetch']
    const enrolled: Parameters<typeof agentAtWork>[1][] = []
    for (let n = 0; n < AGENTS; n += 1) {
      const kind = n < SIDECARS ? 'sidecar' : (callers[n % callers.length] ?? '')
      const name = `${kind.toLowerCase()}-${n}`
      enrolled.push({ kind, name, directory: await enrolledDirectory(stage, root, name) })
    }
    // Not too often: this process is all of the agents too.
    const nobody = (left: () => number | Promise<number>) =>
      eventually(
        () => sleep(200).then(left),
        (count) => count === 0,
        120_000 + AGENTS * 600,
      )
    const everybody = (has: (directory: string) => boolean) =>
      nobody(() => enrolled.filter(({ directory }) => !has(directory)).length)
    const insecure = new Agent({ rejectUnauthorized: false, keepAlive: true })
    t.teardown(() => insecure.destroy())
    const admin = (method: string, path: string, body?: unknown) =>
      ask(stage.door.url + path, method, {
        agent: insecure,
        body,
        headers: { 'x-admin-secret': ADMIN_SECRET },
      })
    const step = async (name: string, body?: unknown): Promise<void> => {
      const take = async () => (await admin('POST', `${ROTATION}/${name}`, body)).status
      t.equal(await eventually(take, (status) => status !== 503), 200, name)
    }

    // A certificate that was stolen, at each replica: on a connection that stays open, and with a stream.
    const { cert, key } = readIdentity(enrolled[0]?.directory ?? '')
    const stolen = { id: '', cert, key }
    const thefts = await Promise.all(
      stage.replicas.map(async ({ name, url }) => {
        const agent = agentOf(stage.ca, stolen, true)
        t.teardown(() => agent.destroy())
        const call = async () => (await ask(url + PATH, 'GET', { agent })).status
        t.equal(await eventually(call, (status) => status !== 503), 200)
        return { name, url, call, stream: await heldCall(t, stage, stolen, 'open', { name, url }) }
      }),
    )
    // Not before: a machine that is too slow for all of them at once could open no stream.
    const agents = await Promise.all(enrolled.map((one) => agentAtWork(t, one, results)))

    await step('prepare', {})
    await everybody((directory) => rootsIn(directory) === 2)
    await step('issue')
    const holders = async () => (await admin('GET', ROTATION)).json.holders.active
    t.equal(await nobody(holders), 0, 'everybody has renewed')
    // Who has a new certificate lets its last call by the old one end.
    await sleep(PAUSE_MS)
    for (const { call } of thefts) t.equal(await call(), 200, 'the old one is in its grace')
    const lost: string[] = []
    for (const { name, stream } of thefts) void stream.lost.then(() => lost.push(name))
    await sleep(0)
    t.same(lost, [], 'the streams go on')
    await step('finish')
    const finishedAt = performance.now()
    const within = (what: string) => {
      const ms = performance.now() - finishedAt
      t.ok(ms < 1_000, `${what}: ${Math.round(ms)} ms`)
    }
    await Promise.all(
      thefts.map(async ({ name, url, call, stream }) => {
        await eventually(call, (status) => status === 401)
        within(`${name} refuses the finished CA on an open connection`)
        const anew = agentOf('', stolen)
        anew.options.rejectUnauthorized = false
        t.equal((await ask(url + PATH, 'GET', { agent: anew })).status, 401, 'and on another one')
        anew.destroy()
        await stream.lost
        within(`${name} has ended the stream`)
      }),
    )
    await everybody((directory) => rootsIn(directory) === 1)
    await Promise.all(agents.map((stop) => stop()))
    t.comment(`${results.served} calls were served, ${results.busy} were asked again`)
    t.same(results.failures, [])
    t.ok(results.busy < results.served / 4)
    for (const replica of stage.replicas) t.equal(replica.ended(), null)
  },
)
