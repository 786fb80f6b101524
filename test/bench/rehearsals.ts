import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { isObject } from '../../db/support/json.ts'
import { readSettings, type Settings } from '../../proxy/boot/settings.ts'
import { type AdminCall, expectStatus } from '../../scripts/admin/call.ts'
import { withControl } from '../../scripts/admin/control.ts'
import { fillHistory } from './alone/measure.ts'
import { isChosen } from './chosen.ts'
import type { Child } from './ground/children.ts'
import { asStarted } from './ground/gateway.ts'
import { enrollAgents, type Ground, operatorsEnv } from './ground/ground.ts'
import { cpuUsOf, rssMbOf } from './ground/proc.ts'
import { measuring } from './measuring.ts'
import { medianOf } from './median.ts'
import { type Point, PRIME } from './points.ts'
import type { Bench } from './workbench.ts'

/** What rehearsals take over a month of recorded calls, and calls beside them. Times are ms. */
export interface RehearsalPoint {
  readonly engine: 'sqlite' | 'postgres'
  readonly decisions: number
  /** Over everybody: the median, and the processor time of the gateway. */
  readonly wholeMs: number
  readonly wholeCpuMs: number | null
  /** What the gateway's resident memory grows by meanwhile, at most. MiB. */
  readonly grownMb: number | null
  /** The preview of one principal, who has made one call of a hundred: the first, and the median of those behind it. */
  readonly firstPreviewMs: number
  readonly previewMs: number
  /** Calls without a rehearsal beside them, and with one after the other. */
  readonly calls: CallsBeside
  readonly callsBeside: CallsBeside
  /** Over everybody, while calls come. */
  readonly besideMs: number
}

export interface CallsBeside {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
}

const WHO = 'acme::allowed'
const LESS = { capabilities: ['mcp.tools.call'] }
/** One about somebody, and one about everybody: so all calls are looked at. */
const CHANGES = [{ principal: WHO, ...LESS }, { settings: { enforce_tools_call: true } }]
const [WHOLE_TIMES, PREVIEWS] = [3, 9]
const LOOK_MS = 20
/** The least time in which calls are measured: some rehearsals long. s. */
const LEAST_S = 15
const CALLS: Point = { name: 'beside rehearsals', connections: 16, kind: 'json', rate: 300 }

/** Measures on each engine that the plan names; nothing where it wants no decisions. */
export async function measureRehearsals(bench: Bench): Promise<readonly RehearsalPoint[]> {
  const { plan } = bench
  if (plan.rehearse === 0 || !isChosen(plan, 'rehearsal')) return []
  const found = [await measureOn(bench, 'sqlite', {})]
  if (plan.postgres !== undefined) found.push(await measureOn(bench, 'postgres', onPostgres(plan.postgres)))
  return found
}

const onPostgres = (url: string): Ground['env'] => ({
  MCP_PROXY_DATABASE_URL: url,
  MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of a bench',
})

async function measureOn(
  bench: Bench,
  engine: RehearsalPoint['engine'],
  more: Ground['env'],
): Promise<RehearsalPoint> {
  const { children, cores, plan, say, upstream } = bench
  const directory = join(bench.ground.directory, `rehearsal-${engine}`)
  const env = { ...(await operatorsEnv(directory, upstream.port)), ...more }
  const settings = readSettings(env, directory)
  const start = { ...(await asStarted(bench.ground.root, `rehearsal-${engine}`, env)), core: cores.measured }
  const first = await children.start(start)
  const agents = await withControl(settings, (call) => enrollAgents(call, upstream.port))
  await first.stop()
  say(`filling a ledger with ${plan.rehearse} decisions and their outcomes: ${engine}`)
  await fillHistory(children, {
    directory: bench.ground.directory,
    url: settings.databaseUrl,
    decisions: plan.rehearse,
  })
  const child = await children.start(start)
  const ground = { ...bench.ground, directory, env, dataDir: settings.dataDir, ...agents }
  const alone = await measureAlone(settings, child)
  const point = { engine, ...alone, ...(await measureBeside(bench, settings, { child, ground })) }
  await child.stop()
  await rm(directory, { recursive: true })
  say(`rehearsal/${engine}: ${Math.round(point.wholeMs)} ms, a preview ${Math.round(point.previewMs)} ms`)
  return point
}

async function measureAlone(settings: Settings, { pid }: Child) {
  return withControl(settings, async (call) => {
    const { decisions } = await rehearsed(call)
    const before = { cpuUs: cpuUsOf(pid), rssMb: rssMbOf(pid) }
    const most = watchRss(pid)
    const times: number[] = []
    for (let time = 0; time < WHOLE_TIMES; time += 1) times.push((await rehearsed(call)).ms)
    const cpuUs = cpuUsOf(pid)
    const rssMb = await most()
    const [firstPreviewMs = 0, ...previews] = await previewed(call)
    return {
      ...{ decisions, wholeMs: medianOf(times), firstPreviewMs, previewMs: medianOf(previews) },
      wholeCpuMs:
        cpuUs === null || before.cpuUs === null ? null : (cpuUs - before.cpuUs) / 1_000 / WHOLE_TIMES,
      grownMb: rssMb === null || before.rssMb === null ? null : Math.max(0, rssMb - before.rssMb),
    }
  })
}

/** Looks at a process's resident memory all the time, until the result is called: that says the most. MiB. */
function watchRss(pid: number): () => Promise<number | null> {
  const state = { isOver: false, most: rssMbOf(pid) }
  const watched = (async () => {
    while (!state.isOver) {
      await pause(LOOK_MS)
      const rssMb = rssMbOf(pid)
      if (rssMb !== null) state.most = Math.max(state.most ?? 0, rssMb)
    }
  })()
  return async () => {
    state.isOver = true
    await watched
    return state.most
  }
}

/** Rehearses over everybody. Rejects where what was recorded does not follow. */
async function rehearsed(call: AdminCall): Promise<{ readonly ms: number; readonly decisions: number }> {
  const from = performance.now()
  const { window, disagreements } = expectStatus(
    await call('POST', '/v1/admin/rehearsals', { changes: CHANGES }),
    200,
  )
  const ms = performance.now() - from
  const decisions = isObject(window) ? Number(window.decisions) : 0
  if (disagreements !== 0) throw new Error(`${String(disagreements)} decisions do not follow from the rows`)
  return { ms, decisions }
}

async function previewed(call: AdminCall): Promise<readonly number[]> {
  const times: number[] = []
  for (let time = 0; time < PREVIEWS; time += 1) {
    const from = performance.now()
    expectStatus(await call('PATCH', `/v1/admin/agents/${WHO}/capabilities?dry_run=true`, LESS), 200)
    times.push(performance.now() - from)
  }
  return times
}

/** Calls at a rate, alone and with one rehearsal after the other beside them. */
async function measureBeside(
  bench: Bench,
  settings: Settings,
  { child, ground }: { readonly child: Child; readonly ground: Ground },
): Promise<Pick<RehearsalPoint, 'calls' | 'callsBeside' | 'besideMs'>> {
  const measure = measuring(bench, { child, ground, tls: true, prime: PRIME })
  const manner = { seconds: Math.max(bench.plan.seconds, LEAST_S) }
  const calls = await measure(CALLS, manner)
  const times: number[] = []
  const state = { isOver: false }
  const rehearsing = withControl(settings, async (call) => {
    while (!state.isOver) times.push((await rehearsed(call)).ms)
  })
  const callsBeside = await measure(CALLS, manner)
  state.isOver = true
  await rehearsing
  return { calls: shownOf(calls), callsBeside: shownOf(callsBeside), besideMs: medianOf(times) }
}

const shownOf = ({ perSecond, p50, p99 }: CallsBeside): CallsBeside => ({ perSecond, p50, p99 })
