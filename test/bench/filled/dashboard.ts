import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { readSettings } from '../../../proxy/boot/settings.ts'
import { type AdminCall, expectStatus } from '../../../scripts/admin/call.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import { fillHistory } from '../alone/measure.ts'
import { isChosen } from '../chosen.ts'
import { asStarted } from '../ground/gateway.ts'
import { enrollAgents, type Ground, operatorsEnv } from '../ground/ground.ts'
import { cpuUsOf } from '../ground/proc.ts'
import type { Measured } from '../job.ts'
import { type Browser, openBrowser, type Shown } from '../load/browser.ts'
import { measuring } from '../measuring.ts'
import { type Point, PRIME } from '../points.ts'
import type { Bench } from '../workbench.ts'

/** What a page takes, by one browser. ms. */
export interface PagePoint {
  readonly page: string
  readonly firstMs: number
  readonly p50Ms: number
  readonly mostMs: number
  /** The processor time of the gateway, the database's server aside: the mean. */
  readonly cpuMs: number | null
}

export interface DashboardPoint {
  readonly engine: 'sqlite' | 'postgres'
  readonly decisions: number
  readonly agents: number
  readonly pages: readonly PagePoint[]
  /** Calls at a rate, alone and while somebody opens one page after the other. */
  readonly calls: Measured
  readonly callsBeside: Measured
  /** The pages that were opened meanwhile. */
  readonly opened: number
}

const [AGENTS, ENROLLING, TIMES] = [10_000, 8, 40]
const SECRET = 'the secret of a bench'
const WHO = '/proxy/agents/acme%3A%3Aallowed'
const CALLS: Point = { name: 'beside browsing', connections: 16, kind: 'json', rate: 100 }

/** Measures on each engine that the plan names; nothing where it wants no decisions. */
export async function measureDashboard(bench: Bench): Promise<readonly DashboardPoint[]> {
  const { plan } = bench
  if (plan.browse === 0 || !isChosen(plan, 'dashboard')) return []
  const found = [await measureOn(bench, 'sqlite', {})]
  const passphrase = { MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of a bench' }
  if (plan.postgres !== undefined)
    found.push(await measureOn(bench, 'postgres', { MCP_PROXY_DATABASE_URL: plan.postgres, ...passphrase }))
  return found
}

async function measureOn(
  bench: Bench,
  engine: DashboardPoint['engine'],
  more: Ground['env'],
): Promise<DashboardPoint> {
  const { children, cores, plan, say, upstream } = bench
  const directory = join(bench.ground.directory, `dashboard-${engine}`)
  const secret = { MCP_PROXY_ADMIN_SECRET: SECRET }
  const env = { ...(await operatorsEnv(directory, upstream.port)), ...secret, ...more }
  const settings = readSettings(env, directory)
  const start = { ...(await asStarted(bench.ground.root, `dashboard-${engine}`, env)), core: cores.measured }
  const first = await children.start(start)
  say(`enrolling ${AGENTS} agents: ${engine}`)
  const agents = await withControl(settings, async (call) => {
    // First: fill-history.ts looks for them among the first rows.
    const made = await enrollAgents(call, upstream.port)
    await enrollMany(call)
    return made
  })
  await first.stop()
  say(`filling a ledger with ${plan.browse} decisions and their outcomes: ${engine}`)
  await fillHistory(children, {
    directory: bench.ground.directory,
    url: settings.databaseUrl,
    decisions: plan.browse,
  })
  const child = await children.start(start)
  const browser = await openBrowser(child.port, agents.allowed.ca, SECRET)
  const open = await pagesOf(browser)
  const pages: PagePoint[] = []
  for (const [page, show] of Object.entries(open)) pages.push(await measurePage(page, show, child.pid))
  const ground = { ...bench.ground, directory, env, dataDir: settings.dataDir, ...agents }
  const measure = measuring(bench, { child, ground, tls: true, prime: PRIME })
  const calls = await measure(CALLS)
  const browsing = browse(Object.values(open))
  const callsBeside = await measure(CALLS)
  const opened = await browsing.stop()
  await browser.close()
  await child.stop()
  await rm(directory, { recursive: true })
  return { engine, decisions: plan.browse, agents: AGENTS, pages, calls, callsBeside, opened }
}

async function enrollMany(call: AdminCall): Promise<void> {
  let next = 0
  const enrolling = Array.from({ length: ENROLLING }, async () => {
    for (let n = next++; n < AGENTS; n = next++) {
      const agent = { agent_name: `many-${n}`, capabilities: ['llm.chat', `own.of_${n % 500}`] }
      expectStatus(await call('POST', '/v1/admin/agents', agent), 201)
    }
  })
  await Promise.all(enrolling)
}

type Show = () => Promise<Shown>

async function pagesOf(browser: Browser): Promise<Readonly<Record<string, Show>>> {
  const at =
    (path: string): Show =>
    () =>
      browser.get(path)
  const [, id = ''] =
    /"\/proxy\/activity\/(req_[^"]+)"/.exec((await browser.get('/proxy/activity')).text) ?? []
  return {
    Attention: at('/proxy'),
    Activity: at('/proxy/activity'),
    'Activity of one': at('/proxy/activity?principal=acme%3A%3Aallowed'),
    refusals: at('/proxy/activity?status=denied'),
    'an unknown model': at('/proxy/activity?model=nobody'),
    why: at(`/proxy/activity/${id}`),
    agents: at('/proxy/agents'),
    'a search that finds little': at('/proxy/agents?q=many-777'),
    'a search that finds nothing': at('/proxy/agents?q=nothingatall'),
    'an agent': at(WHO),
    'what it has used': at(`${WHO}/usage`),
    'the live rehearsal': () => preview(browser),
    capabilities: at('/proxy/capabilities'),
    tools: at('/proxy/tools'),
    settings: at('/proxy/settings'),
    proof: at('/proxy/proof'),
  }
}

/** What a word costs that is typed into the form of a set. */
async function preview(browser: Browser): Promise<Shown> {
  const { text } = await browser.get(WHO)
  const field = (name: string): string =>
    (new RegExp(`name="${name}" value="([^"]+)"`).exec(text)?.[1] ?? '').replaceAll('&quot;', '"')
  const fields = { csrf: field('csrf'), if_match: field('if_match'), capabilities: 'mcp.tools.call' }
  return browser.send(`${WHO}/capabilities`, { ...fields, preview: 'yes' })
}

async function measurePage(page: string, show: Show, pid: number): Promise<PagePoint> {
  const times: number[] = []
  const from = cpuUsOf(pid)
  for (let time = 0; time < TIMES; time += 1) times.push((await show()).ms)
  const to = cpuUsOf(pid)
  const sorted = times.toSorted((one, other) => one - other)
  return {
    ...{ page, firstMs: times[0] ?? 0, p50Ms: sorted[TIMES >> 1] ?? 0, mostMs: sorted.at(-1) ?? 0 },
    cpuMs: from === null || to === null ? null : (to - from) / 1_000 / TIMES,
  }
}

/** Opens all pages in turn, again and again, until it is stopped: that resolves with how many. */
function browse(pages: readonly Show[]): { readonly stop: () => Promise<number> } {
  const state = { isOver: false, opened: 0 }
  const browsing = (async () => {
    while (!state.isOver) {
      await pages[state.opened % pages.length]?.()
      state.opened += 1
      await turn()
    }
  })()
  return {
    stop: async () => {
      state.isOver = true
      await browsing
      return state.opened
    },
  }
}
