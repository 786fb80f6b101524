import { join } from 'node:path'
import { openServerCertificate } from '../../certs/authority/files.ts'
import type { OrganisationAuthority } from '../../certs/authority/rotation.ts'
import { readSetting } from '../../db/settings.ts'
import { AUTHORITY_TOPIC, type NoticeChannel } from '../../db/support/notices.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { GatewayListeners } from '../http/listeners.ts'
import type { TlsMaterial } from '../http/server.ts'
import type { PeriodicTask } from './rounds.ts'

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

/** The time after which a process without a notice uses a CA that another one has made. ms. */
const EVERY_MS = 10_000

/** The time within which changes of authority make one look. ms. */
const TOGETHER_MS = 100

/**
 * Makes the function that uses the CA and names in the database if they have changed. `use` follows, and is
 * called again if it fails.
 */
export function authorityFollower(
  dataDirectory: Pick<DataDirectory, 'authority' | 'follow'>,
  clock: () => number,
  use: () => Promise<void>,
): () => Promise<void> {
  let used = dataDirectory.authority
  return async () => {
    await dataDirectory.follow(clock())
    const { authority } = dataDirectory
    if (authority === used) return
    await use()
    used = authority
  }
}

/** Follows after every change of authority, of which a step is one: whoever took it may be gone since. */
export function followOnChanges(
  notices: Pick<NoticeChannel, 'on'>,
  follow: () => Promise<void>,
  failed: (error: unknown) => void,
): void {
  let isDue = false
  const look = (): void => {
    isDue = false
    follow().catch(failed)
  }
  notices.on(AUTHORITY_TOPIC, () => {
    if (isDue) return
    isDue = true
    setTimeout(look, TOGETHER_MS).unref()
  })
}

/** Makes the function that returns the CA that issues now, also if another process has just had it issue. */
export const issuingAuthority =
  (dataDirectory: Pick<DataDirectory, 'authority' | 'database'>, follow: () => Promise<void>) =>
  async (): Promise<OrganisationAuthority> => {
    const issuing = await readSetting(dataDirectory.database, 'issuing_ca')
    if (issuing !== undefined && issuing !== dataDirectory.authority.digest) await follow()
    return dataDirectory.authority
  }

/** Looks whether there is another CA: a process that has its database to itself hears of no change. */
export const followAuthority = (run: () => Promise<void>): PeriodicTask => ({
  name: 'follow-authority',
  everyMs: EVERY_MS,
  run,
})
