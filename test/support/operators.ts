import { ADMIN_CAPABILITIES } from '../../plugins/operators/capabilities.ts'
import { controlPath } from '../../proxy/http/control-socket.ts'
import { overSocket } from './control.ts'
import type { Answered, Asked, Identity, TestGateway } from './gateway.ts'

/** Makes an operator, and mints its certificate, by the secret. */
export const operatorNamed = (
  gateway: TestGateway,
  name: string,
  capabilities: readonly string[],
): Promise<Identity> => made(gateway.admin, name, capabilities)

/** As {@link operatorNamed}, on the machine itself, where nothing waits for a second person. */
export const operatorOnTheMachine = (
  gateway: TestGateway,
  name: string,
  capabilities: readonly string[],
): Promise<Identity> => made(onTheMachine(gateway), name, capabilities)

/** One who holds all there is. */
export const ownerOnTheMachine = (gateway: TestGateway, name: string): Promise<Identity> =>
  operatorOnTheMachine(gateway, name, ADMIN_CAPABILITIES)

/** What whoever is on the machine itself asks. */
export const onTheMachine = ({ settings }: TestGateway) => overSocket(controlPath(settings.dataDir))

type Ask = (
  method: string,
  path: string,
  body?: unknown,
) => Promise<Pick<Answered, 'status' | 'text' | 'json'>>

async function made(ask: Ask, name: string, capabilities: readonly string[]): Promise<Identity> {
  const created = await ask('POST', '/v1/admin/operators', { operator_name: name, capabilities })
  if (created.status !== 201) throw new Error(`${created.status} ${created.text}`)
  const { principal_id: id } = created.json
  const minted = await ask('POST', `/v1/admin/operators/${id}/rotate-cert`, {})
  if (minted.status !== 200) throw new Error(`${minted.status} ${minted.text}`)
  return { id, cert: minted.json.cert_chain_pem, key: minted.json.private_key_pem }
}

/** What an operator asks of the admin API over its certificate alone. */
export const as =
  (gateway: TestGateway, who: Identity) =>
  (method: string, path: string, body?: unknown, headers?: Asked['headers']): Promise<Answered> =>
    gateway.call(who, method, path, { ...(body !== undefined && { body }), ...(headers && { headers }) })
