import { setTimeout as after } from 'node:timers/promises'
import { messageOf } from '../../../db/support/error-message.ts'
import { readIdentity } from '../identity/identity.ts'
import { GatewayRefusal } from '../refusal.ts'
import { type CertificateLife, certificateLife, type RenewedCertificate, renewIdentity } from './renew.ts'
import { followTrust } from './trust.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
/** The longest sleep: a machine may have slept as well, and the gateway may be replacing its CA. */
const LOOK_MS = 10 * MINUTE_MS
const MAX_RETRY_MS = 6 * HOUR_MS

export interface RenewalOptions {
  readonly directory: string
  /** Replaces the URL in `gateway.json`. */
  readonly url?: string | undefined
  /** Told of each renewal and of each failure. One sentence. */
  readonly notice: (sentence: string) => void
  /** Ends it. */
  readonly signal: AbortSignal
  /** ms since the epoch. Default: `Date.now`. */
  readonly now?: () => number
  /** Resolves after so many ms; rejects if the signal fires. Default: a timer that keeps no process alive. */
  readonly sleep?: (ms: number) => Promise<unknown>
  /** 0 to 1. Default: `Math.random`. */
  readonly random?: () => number
}

/**
 * Renews the certificate of an identity directory by itself, until the signal fires: somewhere in the first
 * half of its last third, so that agents which were enrolled together do not all ask at once; and soon after its
 * CA began to be replaced. After a failure it tries again, a minute later and then less and less often. If the gateway says that it does not renew
 * this certificate, it waits for another one. Never rejects.
 */
export async function keepRenewed(keeping: RenewalOptions): Promise<void> {
  const { directory, url, notice, signal, now = Date.now, random = Math.random } = keeping
  const { sleep = (ms) => after(ms, undefined, { signal, ref: false }) } = keeping
  const share = random() / 2
  let failures = 0
  let refused: string | null = null
  const look = async (): Promise<number> => {
    const identity = readIdentity(directory, url)
    // A gateway that cannot be asked is told of once the certificate is due.
    const isReplaced = await followTrust(directory, url).catch(() => false)
    if (identity.cert === refused) return LOOK_MS
    const due = isReplaced ? now() : dueAt(certificateLife(identity), share)
    if (now() < due) return Math.min(due - now(), LOOK_MS)
    try {
      notice(renewedText(directory, await renewIdentity(directory, url)))
      failures = 0
      return LOOK_MS
    } catch (error) {
      if (!(error instanceof GatewayRefusal) || error.reason !== 'renewal_refused') throw error
      notice(`${directory} is not renewed: ${error.message}`)
      refused = identity.cert
      return LOOK_MS
    }
  }
  while (!signal.aborted) {
    let wait: number
    try {
      wait = await look()
    } catch (error) {
      wait = retryAfter(failures, random())
      failures += 1
      notice(`${directory} was not renewed (${messageOf(error)}); the next attempt is in ${minutes(wait)}`)
    }
    // It rejects if the signal fires, and then that is the end.
    await sleep(wait).catch(() => undefined)
  }
}

/**
 * Makes the function that moves an identity directory to the gateway's next CA, when calls are made: it looks
 * at most once in `everyMs`, and nothing waits for it. A certificate in its last third is left to the keeper.
 */
export function moveOnCalls({
  directory,
  url,
  notice,
  everyMs = LOOK_MS,
}: Pick<RenewalOptions, 'directory' | 'url' | 'notice'> & {
  readonly everyMs?: number | undefined
}): () => void {
  const look = async (): Promise<void> => {
    if (await followTrust(directory, url)) notice(renewedText(directory, await renewIdentity(directory, url)))
  }
  // Not the first call: a process that lives for a moment asks nothing.
  let next = Date.now() + everyMs * Math.random()
  return () => {
    if (Date.now() < next) return
    next = Number.POSITIVE_INFINITY
    void look()
      .catch((error: unknown) => notice(`${directory} did not follow the CA (${messageOf(error)})`))
      .finally(() => {
        next = Date.now() + everyMs * (0.5 + Math.random() / 2)
      })
  }
}

/** The instant to renew at. `share`: 0 to 1, the part of the last third that is let go by. */
const dueAt = ({ renewableFrom, notAfter }: CertificateLife, share: number): number =>
  renewableFrom + (notAfter - renewableFrom) * share

// Half of it and up to all of it, since callers that fail together must not come again together.
function retryAfter(failures: number, random: number): number {
  const most = Math.min(MINUTE_MS * 2 ** Math.min(failures, 16), MAX_RETRY_MS)
  return most * (0.5 + random / 2)
}

const minutes = (ms: number): string => `${Math.max(1, Math.round(ms / MINUTE_MS))} min`

const renewedText = (directory: string, { notAfter }: RenewedCertificate): string =>
  `${directory} was renewed: its certificate is valid until ${new Date(notAfter).toISOString()}`
