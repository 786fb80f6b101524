import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { LLMock } from '@copilotkit/aimock'
import { calculateJwkThumbprint } from 'jose'
import type { Test } from 'tap'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { createFetch, type Fetch } from '../../../scripts/client/create-fetch.ts'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../../scripts/client/sidecar.ts'
import { clientSession } from '../../../scripts/client/signing/session.ts'
import { type TestGateway, testGateway } from '../gateway.ts'
import { identityDirectory } from './identity.ts'
import { mockProvider } from './sdk.ts'

/** What the gateway says once {@link Through.deny} was called. */
export const DENIED = 'acme::bot does not hold the capability llm.chat. Ask an operator to grant it.'

/** What it says to a certificate that comes without a proof. */
export const UNPROVEN = 'A DPoP proof is required.'

/** A gateway that answers no call without a DPoP proof, one agent of it, and that agent's two ways to it. */
export interface Through {
  readonly gateway: TestGateway
  readonly mock: LLMock
  /** The agent's identity directory. */
  readonly directory: string
  /** The helper's fetch, for the gateway's own URL. */
  readonly fetch: Fetch
  /** The sidecar's base URL. */
  readonly sidecar: string
  /** Takes all of the agent's capabilities away: from the next call on the gateway refuses it. */
  readonly deny: () => Promise<void>
  /**
   * Stops the gateway and gives its decisions on calls that came past the dpop plugin, as their `status`,
   * oldest first. The test has failed where one of them was not bound to the agent's own key.
   */
  readonly proven: () => Promise<readonly string[]>
}

/**
 * `egress_dpop_mode: optional`, the agent `bot` that may chat, and its sidecar; all of it ends with the test.
 */
export async function through(t: Test, more: Readonly<Record<string, string>> = {}): Promise<Through> {
  const { mock, files } = await mockProvider(t)
  const gateway = await testGateway(t, {
    files: { ...files, ...more, '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n' },
  })
  const directory = await identityDirectory(t, gateway)
  const session = clientSession(readIdentity(directory))
  const { url: sidecar, close } = await startSidecar(session, '127.0.0.1', 0)
  t.teardown(async () => {
    await close(0)
    await session.close()
  })
  return {
    gateway,
    mock,
    directory,
    fetch: createFetch(directory),
    sidecar,
    deny: async () => {
      const path = '/v1/admin/agents/acme::bot/capabilities'
      t.equal((await gateway.admin('PATCH', path, { capabilities: [] })).status, 200)
    },
    proven: () => proven(t, gateway, directory),
  }
}

async function proven(t: Test, gateway: TestGateway, directory: string): Promise<readonly string[]> {
  await gateway.close()
  const jkt = await calculateJwkThumbprint(JSON.parse(readFileSync(join(directory, 'dpop.jwk'), 'utf8')))
  const rows = (await gateway.rows()).filter(isPastProof)
  for (const row of rows) t.match(row, { principal_id: 'acme::bot', dpop_jkt: jkt }, `${row.status}, bound`)
  return rows.map(({ status }) => status)
}

// What the dpop plugin itself refuses proves nothing: the call with which a session learns its first nonce is
// one of these.
const isPastProof = ({ action, status, detail }: AuditRow): boolean =>
  action === 'egress_llm_chat' &&
  (status === 'allowed' || status === 'denied') &&
  detail.refused_by !== 'dpop'

/** So many times the same status, as {@link Through.proven} gives them. */
export const times = (count: number, status: 'allowed' | 'denied'): readonly string[] =>
  Array.from({ length: count }, () => status)
