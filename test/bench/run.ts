import { rm } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { messageOf } from '../../db/support/error-message.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { withControl } from '../../scripts/admin/control.ts'
import type { Es256 } from './alone/es256.ts'
import { measureEs256 } from './alone/measure.ts'
import { isChosen, nameOf } from './chosen.ts'
import type { Child } from './ground/children.ts'
import type { Prepared } from './ground/gateway.ts'
import type { Ground } from './ground/ground.ts'
import type { Peer } from './ground/peers/peer.ts'
import { measuring, type Running } from './measuring.ts'
import type { Point } from './points.ts'
import { rateOf } from './rate.ts'
import type { Row } from './row.ts'
import { measureStart, type StartUp } from './start-up.ts'
import { GATEWAY, isGateway, type Subject, subjects } from './subjects.ts'
import type { Bench, Plan } from './workbench.ts'

export interface Round {
  readonly rows: readonly Row[]
  readonly startUp: StartUp | null
  /** The speed of verification. Null where nothing was asked with a proof. */
  readonly es256: Es256 | null
}

/** Measures every server once, one after the other. Says what it leaves out. */
export async function runRound(bench: Bench): Promise<Round> {
  const rows: Row[] = []
  let startUp: StartUp | null = null
  let es256: Es256 | null = null
  for (const subject of subjects(bench.plan.idle)) {
    const points = subject.points.filter((point) => isChosen(bench.plan, nameOf(subject.name, point)))
    if (points.length === 0) continue
    if (points.some(({ proof, kind }) => proof && typeof kind === 'string')) es256 ??= await ceiling(bench)
    const begun = await (subject.peer ? beginPeer(bench, subject.peer) : begin(bench, subject))
    if (!begun) continue
    const { start, ...running } = begun
    rows.push(...(await measureAll(bench, subject, points, running, rows)))
    if (!start) continue
    await running.child.stop()
    if (subject.name === GATEWAY) startUp = await measureStart(bench, start)
    const dataDir = start.env?.MCP_PROXY_DATA_DIR
    if (dataDir) await rm(dataDir, { recursive: true, force: true })
  }
  return { rows, startUp, es256 }
}

/** A server that runs; `start` is null for the one that runs all the time. */
interface Begun extends Pick<Running, 'headers' | 'mcp'> {
  readonly child: Child
  readonly start: Prepared | null
}

async function begin(bench: Bench, { start: prepare }: Subject): Promise<Begun> {
  const { children, cores, ground, plan, upstream } = bench
  if (!prepare) return { child: upstream, start: null }
  const start = await prepare(ground, upstream.port)
  return { child: await children.start({ ...profiled(start, plan), core: cores.measured }), start }
}

/** Starts a server of others. Null, and said, where it is not installed or cannot be started. */
async function beginPeer(bench: Bench, { name, version, prepare }: Peer): Promise<Begun | null> {
  const { children, cores, ground, plan, say, upstream } = bench
  if (version(plan.peers) === null) {
    say(`${name} is not installed: skipped`)
    return null
  }
  const place = { directory: ground.directory, upstreamPort: upstream.port, installed: plan.peers }
  const { start, ...asked } = await prepare(place)
  try {
    return { child: await children.start({ ...start, core: cores.measured }), start, ...asked }
  } catch (error) {
    say(`${name} is skipped: ${messageOf(error)}`)
    return null
  }
}

async function ceiling({ children, ground, cores, plan, say }: Bench): Promise<Es256> {
  const found = await measureEs256(children, ground.directory, cores.measured, plan.seconds)
  say(`bare ES256 verification: ${Math.round(found.bare.perSecond)}/s`)
  return found
}

export function profiled(start: Prepared, { profileDir }: Plan): Prepared {
  if (!profileDir || start.command !== process.execPath) return start
  return { ...start, args: ['--cpu-prof', '--cpu-prof-dir', profileDir, ...start.args] }
}

async function measureAll(
  bench: Bench,
  subject: Subject,
  points: readonly Point[],
  running: Pick<Running, 'child' | 'headers' | 'mcp'>,
  before: readonly Row[],
): Promise<readonly Row[]> {
  const { name: server, tls, prime } = subject
  const { ground, say } = bench
  const measure = measuring(bench, { ...running, ground, tls, prime })
  const loopP99 = async () => (isGateway(server) ? loopP99Of(ground, server) : null)
  const rows: Row[] = []
  for (const point of points) {
    const rate = await rateOf(point, server, [...before, ...rows], measure)
    if (rate === 0) {
      say(`${nameOf(server, point)} needs another point of the gateway: skipped`)
      continue
    }
    const measured = await measure(point, { ...(rate && { rate }), before: loopP99 })
    const loopP99Ms = await loopP99()
    rows.push({ ...measured, server, point: point.name, connections: point.connections, loopP99Ms })
    const errors = measured.errors > 0 ? `, ${measured.errors} ERRORS` : ''
    say(`${nameOf(server, point)}: ${Math.round(measured.perSecond)}/s${errors}`)
    await pause(200)
  }
  return rows
}

/**
 * Asks the running gateway for the figure, as its local operator would. Each question starts the figure anew.
 */
async function loopP99Of({ env, directory }: Ground, server: string): Promise<number | null> {
  const settings = readSettings({ ...env, MCP_PROXY_DATA_DIR: `data-${server}` }, directory)
  const { body } = await withControl(settings, (call) => call('GET', '/metrics'))
  const seconds = /^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(String(body))?.[1]
  return seconds === undefined ? null : Number(seconds) * 1_000
}
