import { join } from 'node:path'
import { openServerCertificate } from '../../certs/authority/files.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { GatewayListeners } from '../http/listeners.ts'
import type { TlsMaterial } from '../http/server.ts'
import type { PeriodicTask } from './every.ts'

const HOUR_MS = 3_600_000

/** Opens the server's certificate. Makes one if it is missing, for other names, or near its end. */
export async function tlsMaterial(
  { settings, authority, passphrase }: DataDirectory,
  at: number,
): Promise<TlsMaterial> {
  const { certPem, keyPem } = await openServerCertificate({
    directory: join(settings.dataDir, 'ca'),
    authority,
    passphrase,
    hostnames: settings.hostnames,
    at,
  })
  return { certPem, keyPem, minVersion: settings.tlsMinVersion }
}

/** Checks the server's certificate every hour and swaps in the one on the disk, without a restart. */
export function renewServerCertificate(
  dataDirectory: DataDirectory,
  listeners: GatewayListeners | null,
  clock: () => number,
): PeriodicTask {
  const run = async (): Promise<void> => listeners?.useCertificate(await tlsMaterial(dataDirectory, clock()))
  return { name: 'renew-server-certificate', everyMs: HOUR_MS, run }
}
