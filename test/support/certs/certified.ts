import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Identity, scratch, type TestGateway } from '../gateway.ts'

interface NewUser {
  readonly user_name: string
  readonly display_name?: string
  readonly capabilities?: readonly string[]
}

/** A key, and a request for its certificate, made by openssl. PEM. */
export async function requestFor(t: Test): Promise<{ readonly csr: string; readonly key: string }> {
  const directory = await scratch(t)
  const [key, csr] = [join(directory, 'k.pem'), join(directory, 'r.pem')]
  execFileSync('openssl', ['ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', key])
  execFileSync('openssl', ['req', '-new', '-key', key, '-subj', '/CN=whatever', '-out', csr])
  return { csr: readFileSync(csr, 'utf8'), key: readFileSync(key, 'utf8') }
}

/** A user with a certificate by its own request. `ref`: its pseudonym. */
export async function certifiedUser(
  t: Test,
  gateway: TestGateway,
  { capabilities = ['llm.chat'], ...user }: NewUser,
): Promise<{ readonly who: Identity; readonly ref: string }> {
  const created = await gateway.admin('POST', '/v1/admin/users', { ...user, capabilities })
  const { principal_id: id, principal_ref: ref } = created.json
  const { csr, key } = await requestFor(t)
  const certified = await gateway.admin('POST', `/v1/admin/users/${id}/certificate`, { csr_pem: csr })
  if (certified.status !== 200) throw new Error(`certifying ${id}: ${certified.status} ${certified.text}`)
  return { who: { id, cert: certified.json.cert_chain_pem, key }, ref }
}
