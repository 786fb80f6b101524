import type { NoticeChannel } from '../../db/support/notices.ts'
import type { DataDirectory } from '../boot/data-directory.ts'
import type { PeriodicTask } from './every.ts'

/** The time after which a process without a notice uses a CA that another one has made. ms. */
const EVERY_MS = 10_000

/** The notice that the organisation was named, and the CA made again. */
export const ORGANISATION_NAMED = 'named'

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

/** Makes the function that tells every process of a service that the organisation was named, this one first. */
export const announceNaming =
  (notices: Pick<NoticeChannel, 'notify'>, follow: () => Promise<void>) => async (): Promise<void> => {
    notices.notify(ORGANISATION_NAMED, 'anew')
    await follow()
  }

/** Looks whether a CA was made again: a notice may be lost. */
export const followAuthority = (run: () => Promise<void>): PeriodicTask => ({
  name: 'follow-authority',
  everyMs: EVERY_MS,
  run,
})
