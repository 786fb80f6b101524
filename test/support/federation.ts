import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { createLocalJWKSet, decodeJwt, type JWTVerifyResult, jwtVerify } from 'jose'
import { pino } from 'pino'
import type { Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { findPrincipal } from '../../db/principals/read.ts'
import { insertPrincipal, setCapabilities } from '../../db/principals/write.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'
import { openTokenKeys } from '../../proxy/auth/token-keys.ts'
import { federationTask } from '../../proxy/federation/publish.ts'
import type { RoundsTask } from '../../proxy/tasks/rounds.ts'
import { databaseUrl } from './db/engine.ts'
import { leading } from './db/leading.ts'

export const AT = Date.UTC(2026, 0, 1)
export const ISSUER = 'https://gate.example.com'
export const FIVE_MINUTES_MS = 300_000

export interface Received {
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly jws: string
  /** What it says of itself, not verified: `<name>@<revision>`. */
  readonly label: string
}

export type Answering = (received: Received, response: ServerResponse) => void | Promise<void>

export interface Receiver {
  readonly url: string
  readonly received: readonly Received[]
  readonly labels: () => readonly string[]
  answer: Answering
  readonly close: () => Promise<void>
}

export const answering =
  (status: number, headers: Record<string, string> = {}): Answering =>
  (_received, response) =>
    void response.writeHead(status, headers).end()

/**
 * A federation's end: a real server on loopback that keeps what it was sent. Answers 204 until it is told
 * otherwise.
 */
export async function receiver(t: Test, port = 0): Promise<Receiver> {
  const received: Received[] = []
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const jws = await text(request)
    const claims = decodeJwt<{ agent?: { agent_id?: string }; federation_revision?: number }>(jws)
    const name = claims.agent?.agent_id?.replace('acme::', '')
    const label = `${name}@${claims.federation_revision}`
    const one = { path: `${request.method} ${request.url}`, headers: request.headers, jws, label }
    received.push(one)
    await opened.answer(one, response)
  }
  const server = createServer((request, response) => void take(request, response))
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const close = async (): Promise<void> => {
    server.closeAllConnections()
    if (server.listening) await new Promise((resolve) => server.close(resolve))
  }
  t.teardown(close)
  // A server that listens on TCP has this form of address.
  const { port: actual } = server.address() as AddressInfo
  const opened: Receiver = {
    url: `http://127.0.0.1:${actual}/federation?tenant=1`,
    received,
    labels: () => received.map(({ label }) => label),
    answer: answering(204),
    close,
  }
  return opened
}

export interface DataDirectory {
  readonly clock: { at: number }
  readonly keys: Awaited<ReturnType<typeof openTokenKeys>>
  readonly lines: () => readonly string[]
  readonly task: (url: string, timeoutMs?: number) => RoundsTask
  readonly write: (...statements: readonly LedgerStatement[]) => Promise<void>
  readonly enroll: (name: string, federated?: boolean) => Promise<string>
  readonly grant: (name: string, ...capabilities: string[]) => Promise<void>
  readonly database: Awaited<ReturnType<typeof openDatabase>>
  readonly ledger: Awaited<ReturnType<typeof openLedger>>
  /** By name, what was pushed last. */
  readonly pushed: () => Promise<Readonly<Record<string, number>>>
  readonly verify: (jws: string) => Promise<JWTVerifyResult>
  readonly close: () => Promise<void>
}

/**
 * A database with its ledger and signing keys, in the test's own directory: a second one there is the
 * restart.
 */
export async function dataDirectory(t: Test, directory: string): Promise<DataDirectory> {
  const clock = { at: AT }
  const database = await openDatabase(await databaseUrl(directory))
  await leading(database, 'publish-federation')
  const ledger = await openLedger({ database, version: '0.6.4' })
  const keys = await openTokenKeys({ database, ledger, passphrase: 'p', clock: () => clock.at })
  const lines: string[] = []
  const log = pino({}, { write: (line: string) => lines.push(line) })
  const tasks: RoundsTask[] = []
  let closed = false
  const close = async (): Promise<void> => {
    if (closed) return
    closed = true
    for (const task of tasks) await task.stop()
    await ledger.close()
    await database.close()
  }
  t.teardown(close)
  const write: DataDirectory['write'] = async (...statements) =>
    void (await ledger.commit({ statements, entries: [] }))
  const sources = { database, ledger, keys, issuer: () => ISSUER, clock: () => clock.at, log }
  return {
    ...{ clock, keys, database, ledger, write, close },
    lines: () => lines,
    task: (url, timeoutMs = 600_000) => {
      const task = federationTask({ ...sources, url, timeoutMs })
      tasks.push(task)
      return task
    },
    enroll: async (name, federated = true) => {
      const id = `acme::${name}`
      const none = { displayName: null, spiffeId: null, dpopJkt: null, capabilities: [] }
      await write(
        insertPrincipal(database, {
          ...{ ...none, type: 'agent', id, ref: id, name, enrollmentMethod: 'minted', federated, at: AT },
        }),
      )
      return id
    },
    grant: async (name, ...capabilities) => {
      const id = `acme::${name}`
      const { revision = 0 } = (await findPrincipal(database, 'agent', id)) ?? {}
      await write(setCapabilities(database, { type: 'agent', id, revision, capabilities, at: clock.at }))
    },
    pushed: async () => {
      const rows = await database.kysely
        .selectFrom('internal_agents')
        .select(['name', 'last_pushed_revision as revision'])
        .execute()
      return Object.fromEntries(rows.map(({ name, revision }) => [name, revision]))
    },
    verify: async (jws) =>
      jwtVerify(jws, createLocalJWKSet({ keys: [...(await keys.jwks()).keys] }), {
        ...{ algorithms: ['ES256'], typ: 'sallyport-federation+jwt', issuer: ISSUER },
        ...{ currentDate: new Date(clock.at), requiredClaims: ['iat', 'jti'] },
      }),
  }
}

/** A data directory and a receiver of its pushes, for one test. */
export const opened = async (t: Test): Promise<readonly [DataDirectory, Receiver]> =>
  Promise.all([dataDirectory(t, t.testdir()), receiver(t)])
