import type { OrganisationAuthority } from '../../certs/authority/rotation.ts'
import { readSetting } from '../../db/settings.ts'
import { AUTHORITY_TOPIC, type NoticeChannel } from '../../db/support/notices.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { PeriodicTask } from './every.ts'

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
