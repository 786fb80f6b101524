import type { Answered, Asked, Identity, TestGateway } from './gateway.ts'

/** Makes an operator, and mints its certificate. */
export async function operatorNamed(
  gateway: TestGateway,
  name: string,
  capabilities: readonly string[],
): Promise<Identity> {
  const created = await gateway.admin('POST', '/v1/admin/operators', { operator_name: name, capabilities })
  if (created.status !== 201) throw new Error(`${created.status} ${created.text}`)
  const { principal_id: id } = created.json
  const minted = await gateway.admin('POST', `/v1/admin/operators/${id}/rotate-cert`, {})
  if (minted.status !== 200) throw new Error(`${minted.status} ${minted.text}`)
  return { id, cert: minted.json.cert_chain_pem, key: minted.json.private_key_pem }
}

/** What an operator asks of the admin API over its certificate alone. */
export const as =
  (gateway: TestGateway, who: Identity) =>
  (method: string, path: string, body?: unknown, headers?: Asked['headers']): Promise<Answered> =>
    gateway.call(who, method, path, { ...(body !== undefined && { body }), ...(headers && { headers }) })
