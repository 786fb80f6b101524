import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { OWNER_AND_GROUP, readSecretFile } from '../../plugins/operator-files/secret-file.ts'
import type { Settings } from '../boot/settings.ts'
import type { GatewayListeners } from '../http/listeners.ts'
import type { TlsMaterial } from '../http/server.ts'

/** Reads the certificate of the listener for people; null if it has none of its own. Throws one sentence. */
export async function readPeopleCertificate({
  people,
  tlsMinVersion: minVersion,
}: Pick<Settings, 'people' | 'tlsMinVersion'>): Promise<TlsMaterial | null> {
  if (!people?.tls) return null
  const { cert, key } = people.tls
  const material = {
    certPem: await readFile(cert, 'utf8').catch((cause: unknown) => {
      throw new Error(`MCP_PROXY_PEOPLE_TLS_CERT: ${cert} cannot be read`, { cause })
    }),
    keyPem: readSecretFile(key, OWNER_AND_GROUP),
    minVersion,
  }
  try {
    createSecureContext({ cert: material.certPem, key: material.keyPem })
  } catch (cause) {
    throw new Error(`MCP_PROXY_PEOPLE_TLS_CERT: ${cert} and ${key} are not a certificate and its key`, {
      cause,
    })
  }
  return material
}

const EVERY_MS = 60_000

/**
 * Shows the certificate that the files hold now, if they have changed since. Files that cannot be used leave
 * the one before in place, and the error is logged.
 */
export function followPeopleCertificate(
  settings: Pick<Settings, 'people' | 'tlsMinVersion'>,
  listeners: Pick<GatewayListeners, 'usePeopleCertificate'> | null,
) {
  let shown: TlsMaterial | null = null
  const run = async (): Promise<void> => {
    const found = await readPeopleCertificate(settings)
    if (!found || (found.certPem === shown?.certPem && found.keyPem === shown.keyPem)) return
    shown = found
    listeners?.usePeopleCertificate(found)
  }
  return { name: 'follow-people-certificate', everyMs: EVERY_MS, run }
}
