import { isIP } from 'node:net'
import { join } from 'node:path'
import { writePrivateFile } from '../../certs/authority/key-store.ts'
import { readSettings, type Settings } from '../../proxy/boot/settings.ts'
import { gatewayText } from '../client/identity/files.ts'
import { gatewayIn } from '../client/identity/identity.ts'
import { type AdminCall, expectStatus } from './call.ts'
import { type AdminDoor, operatorDirectory } from './door.ts'

/** Writes a new identity's trust in the gateway: `org-ca.crt` and `ca-chain.pem`. */
export async function writeTrust(call: AdminCall, directory: string): Promise<void> {
  const pem = async (path: string): Promise<string> => String((await call('GET', path)).body)
  await writePrivateFile(join(directory, 'org-ca.crt'), await pem('/pki/ca.crt'))
  await writePrivateFile(join(directory, 'ca-chain.pem'), await pem('/pki/ca-chain.pem'))
}

export const writeGateway = (directory: string, url: string, id: string): Promise<void> =>
  writePrivateFile(join(directory, 'gateway.json'), gatewayText(url, id))

/** The URL of clients, as the running gateway says it, else by the settings, which know no picked port. */
export async function clientUrl(call: AdminCall): Promise<string> {
  const { issuer } = expectStatus(await call('GET', '/.well-known/oauth-authorization-server'), 200)
  if (typeof issuer === 'string' && issuer !== '') return new URL(issuer).origin
  const settings = readSettings(process.env, process.cwd())
  return new URL(settings.publicUrls?.[0] ?? urlOf(settings, settings.listen)).origin
}

/**
 * The URL of operators: the one that this operator uses; on the machine itself the listener of
 * administration, or the clients' if it has none.
 */
export async function operatorUrl(call: AdminCall, door: AdminDoor): Promise<string> {
  const directory = operatorDirectory(door)
  if (directory !== undefined) return gatewayIn(directory, door.gateway).url
  const settings = readSettings(process.env, process.cwd())
  const { adminListen } = settings
  return adminListen === null || adminListen.port === 0 ? clientUrl(call) : urlOf(settings, adminListen)
}

/** A listener of this machine alone is reached there; others by the certificate's first name. */
function urlOf({ hostnames }: Settings, { host, port }: Settings['listen']): string {
  const [named = 'localhost'] = hostnames
  const name = host === '127.0.0.1' || host === '::1' ? 'localhost' : named
  return new URL(`https://${isIP(name) === 6 ? `[${name}]` : name}:${port}`).origin
}
