import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import {
  type BalancerOptions,
  type ClusterBalancer,
  haproxyProgram,
  type ServerState,
  startBalancer,
} from '../../scripts/cluster/haproxy.ts'
import { freePort } from '../../scripts/free-port.ts'
import { scratch } from './gateway.ts'

const PROGRAM = haproxyProgram()

/** Why a test that needs a HAProxy is left out; false where there is one. */
export const skipWithoutHaproxy = PROGRAM === null ? 'skipped: no haproxy' : false

export interface TestBalancer extends ClusterBalancer {
  /** `https://localhost:port`. */
  readonly url: string
  /** Resolves once what it knows of its servers is so; rejects after half a minute. */
  readonly until: (right: (servers: readonly ServerState[]) => boolean) => Promise<void>
}

/**
 * A real HAProxy in TCP mode on a port of its own in front of `host:port`s, ended with the test. Resolves once
 * it has looked at each of them and all can serve, unless `wait` is false.
 */
export async function haproxy(
  t: Test,
  servers: readonly string[],
  options: Partial<Pick<BalancerOptions, 'proxyProtocol' | 'check' | 'checkMs' | 'words'>> & {
    readonly wait?: boolean
  } = {},
): Promise<TestBalancer> {
  const { wait = true, check = 'tcp', ...rest } = options
  // A handshake with a gateway may take long where many tests run, and must be over within the interval.
  const checkMs = check === 'ready' ? 2_000 : 100
  const balancer = await started(await scratch(t), {
    proxyProtocol: false,
    check,
    checkMs,
    ...rest,
    servers,
  })
  t.teardown(async () => {
    balancer.tied.signal('SIGKILL')
    await balancer.tied.ended
  })
  const until: TestBalancer['until'] = async (right) => {
    const end = performance.now() + 30_000
    for (;;) {
      const states = await balancer.servers()
      if (right(states)) return
      if (performance.now() > end) throw new Error(`HAProxy sees ${JSON.stringify(states)}`)
      await sleep(20)
    }
  }
  if (wait) await until((states) => states.every(({ up, checked }) => up && checked))
  return { ...balancer, url: `https://localhost:${balancer.port}`, until }
}

/** It cannot be told to pick a port: one that was free a moment ago may be taken, and then another is tried. */
async function started(
  directory: string,
  options: Omit<BalancerOptions, 'directory' | 'port'>,
  tries = 5,
): Promise<ClusterBalancer> {
  const port = await freePort()
  try {
    return await startBalancer(PROGRAM ?? 'haproxy', { ...options, directory, port })
  } catch (error) {
    if (tries === 0 || !String(error).includes('cannot bind')) throw error
    return started(directory, options, tries - 1)
  }
}
