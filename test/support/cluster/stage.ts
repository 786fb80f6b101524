import { once } from 'node:events'
import { Agent } from 'node:https'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import type { QueryResult } from 'pg'
import type { Test } from 'tap'
import {
  ADMIN_SECRET,
  type Answered,
  ask,
  type Identity,
  PLUGIN_FILES,
  scratch,
  writeFiles,
} from '../gateway.ts'
import { haproxy, type TestBalancer } from '../haproxy.ts'
import { asked, type SharedDatabase, sharedDatabase } from './database.ts'
import { linkTo } from './link.ts'
import { type Provider, provider } from './provider.ts'
import { type Replica, replicaOf } from './replicas.ts'
import type { Scope } from './scope.ts'

/** The address by which callers reach replicas. */
export interface Door {
  readonly url: string
}

export interface Stage<StageDoor extends Door = TestBalancer> {
  readonly database: SharedDatabase
  readonly provider: Provider
  readonly replicas: readonly Replica[]
  /** The balancer of them all, or the port that they share. */
  readonly door: StageDoor
  readonly ca: string
  /** Calls the admin API with the operator's secret: through the door, or at one replica. */
  readonly admin: (
    method: string,
    path: string,
    body?: unknown,
    at?: Pick<Replica, 'url'>,
  ) => Promise<Answered>
  readonly enroll: (name: string, capabilities?: readonly string[]) => Promise<Identity>
  /** Where the ledger is read, past all links: a failover moves it. */
  ledgerUrl: string
  readonly ledger: (text: string, values?: readonly unknown[]) => Promise<QueryResult>
}

export interface StageOptions {
  readonly count?: number
  /** How HAProxy finds out who can serve. Default `tcp`: a replica without its database is not taken out. */
  readonly check?: 'tcp' | 'ready'
  readonly logLevel?: string
}

/**
 * Three replicas on one database, each by a link of its own, behind a real HAProxy, with a provider that remembers.
 * All that runs ends with the scope.
 */
export async function clusterStage(
  scope: Scope,
  { count = 3, check = 'tcp', logLevel = 'warn' }: StageOptions = {},
): Promise<Stage> {
  const ports = await freePorts(count)
  // Proven: it takes a test for its end alone.
  const door = await haproxy(
    scope as Test,
    ports.map((port) => `127.0.0.1:${port}`),
    { check, checkMs: 200, wait: false },
  )
  const stage = await stageOf(scope, door, ports, { MCP_PROXY_LOG_LEVEL: logLevel })
  await door.until((servers) => servers.every(({ up, checked }) => up && checked))
  return stage
}

/**
 * Three replicas on one database that share two ports of this machine, one for calls and one for administration,
 * without a balancer.
 */
export async function onePortStage(scope: Scope, count = 3): Promise<Stage<Door>> {
  const [port = 0, adminPort = 0] = await freePorts(2)
  const ports = Array.from({ length: count }, () => port)
  const settings = {
    MCP_PROXY_REUSE_PORT: 'true',
    MCP_PROXY_ADMIN_LISTEN: `127.0.0.1:${adminPort}`,
    MCP_PROXY_LOG_LEVEL: 'warn',
  }
  const at = (shared: number): Door => ({ url: `https://localhost:${shared}` })
  return stageOf(scope, at(port), ports, settings, at(adminPort))
}

/** Starts a replica at each of the ports, each with a link of its own to the database of all. */
async function stageOf<StageDoor extends Door>(
  scope: Scope,
  door: StageDoor,
  ports: readonly number[],
  settings: Readonly<Record<string, string>>,
  adminDoor: Door = door,
): Promise<Stage<StageDoor>> {
  const database = await sharedDatabase(scope)
  // Proven: it takes a test for its end alone.
  const directory = await scratch(scope as Test)
  const decided = async (model: string): Promise<boolean> => {
    const since = new Date(Date.now() - RECENT_MS).toISOString()
    const { rows } = await asked(stage.ledgerUrl, DECIDED, [`%"model":"${model}"%`, since], LOOK_MS)
    return rows.length > 0
  }
  const upstream = await provider(scope, decided)
  await writeFiles(join(directory, 'config'), PLUGIN_FILES, upstream.url)
  const env = {
    MCP_PROXY_PLUGINS_DIR: join(directory, 'config'),
    MCP_PROXY_ADMIN_SECRET: ADMIN_SECRET,
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    MCP_PROXY_PUBLIC_URLS: door.url,
    ...settings,
  }
  const replicas = await Promise.all(
    ports.map(async (port, n) => {
      const link = await linkTo(scope, database.socket)
      const url = `postgres://postgres@127.0.0.1:${link.port}/${database.name}`
      const replica = await replicaOf(scope, {
        name: `r${n + 1}`,
        directory,
        port,
        link,
        env: { ...env, MCP_PROXY_DATABASE_URL: url },
      })
      await replica.start()
      return replica
    }),
  )
  // Not through the door: the balancer may not have seen yet that they have started.
  const { text: ca } = await ask(`${replicas[0]?.url}/pki/ca.crt`, 'GET', {
    agent: new Agent({ rejectUnauthorized: false }),
  })
  const admin: Stage['admin'] = async (method, path, body, at = adminDoor) => {
    const agent = new Agent({ ca })
    try {
      return await ask(at.url + path, method, { agent, body, headers: { 'x-admin-secret': ADMIN_SECRET } })
    } finally {
      agent.destroy()
    }
  }
  const enroll: Stage['enroll'] = async (name, capabilities = ['llm.chat']) => {
    const { status, json, text } = await admin('POST', '/v1/admin/agents', { agent_name: name, capabilities })
    if (status !== 201) throw new Error(`enrolling ${name}: ${status} ${text}`)
    return { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
  }
  const stage: Stage<StageDoor> = {
    database,
    provider: upstream,
    replicas,
    door,
    ca,
    admin,
    enroll,
    ledgerUrl: database.url,
    ledger: (text, values) => asked(stage.ledgerUrl, text, values),
  }
  return stage
}

/** The rows of longer ago are not looked through. ms. */
const RECENT_MS = 60_000

/** The time that the provider looks for a decision. ms. */
const LOOK_MS = 500

const DECIDED = `select 1 from audit_log where status = 'allowed' and leaf like $1 and recorded_at >= $2 limit 1`

/** Ports that were free a moment ago. */
async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(servers.map((server) => once(server, 'listening')))
  const ports = servers.map((server) => (server.address() as AddressInfo).port)
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  return ports
}
