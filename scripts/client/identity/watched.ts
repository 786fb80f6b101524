import { createPrivateKey, X509Certificate } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isFileNotFound } from '../../../certs/authority/key-store.ts'
import { messageOf } from '../../../db/support/error-message.ts'
import { storedDpopKey } from '../signing/dpop-key.ts'
import { type Identity, readIdentity } from './identity.ts'

/** The least time between two looks at the files. ms. */
const LOOK_MS = 1_000

const FILES = ['agent.crt', 'agent.key', 'org-ca.crt', 'dpop.jwk']

export interface CurrentIdentity {
  /** Returns the identity to use: the same object for as long as nothing has changed. */
  readonly current: () => Identity
  /** Looks for a newer one, if it is time to. Never rejects. */
  readonly refresh: () => Promise<void>
  /** Has the next `refresh` look at the files, however lately that was done: the gateway refused this one. */
  readonly invalidate: () => void
}

export interface IdentityWatchOptions {
  readonly directory: string
  /** ms since the epoch. */
  readonly now: () => number
  /** Called, once each, with a change or the reason that one cannot be used. One sentence. */
  readonly notice: (sentence: string) => void
}

/**
 * Follows the files of an identity directory: certificate and key, the CA, the proof key. They are looked at
 * when a call is made, and at most once a second: nothing runs while nobody calls. New files are used once
 * certificate and key belong together, the old ones until then: the two may be replaced one after the other,
 * in place, by renaming, or behind a link. Does NOT follow `gateway.json`.
 */
export function watchIdentity(
  first: Identity,
  { directory, now, notice }: IdentityWatchOptions,
): CurrentIdentity {
  let kept = first
  // Unknown: the files may have changed since the first was read.
  let seen: string | null = null
  let lookedAt = now()
  let said = ''
  let looking: Promise<void> | null = null

  const say = (sentence: string): void => {
    if (sentence !== said && sentence !== '') notice(sentence)
    said = sentence
  }
  const look = async (): Promise<void> => {
    // Before they are read: a change meanwhile is seen at the next look.
    const state = await stateOf(directory)
    if (state === seen) return
    try {
      // A proof key that is being replaced is not there for a moment: none is made.
      const dpopJwk = storedDpopKey(directory) ?? kept.dpopJwk
      const read = { ...readIdentity(directory, first.url, dpopJwk), agentId: first.agentId }
      const fault = faultOf(read)
      if (fault !== null) return say(`${directory}: ${fault}; the previous identity stays in use`)
      seen = state
      said = ''
      if (JSON.stringify(read) === JSON.stringify(kept)) return
      kept = read
      say(`${directory} has changed: new calls use ${certificateText(read)}`)
    } catch (error) {
      say(`${messageOf(error)}; the previous identity stays in use`)
    }
  }
  return {
    current: () => kept,
    refresh: async () => {
      // Also if the clock was set back.
      if (looking === null && Math.abs(now() - lookedAt) >= LOOK_MS) {
        lookedAt = now()
        looking = look().finally(() => {
          looking = null
        })
      }
      await looking
    },
    invalidate: () => {
      lookedAt = Number.NEGATIVE_INFINITY
    },
  }
}

async function stateOf(directory: string): Promise<string> {
  const states = FILES.map(async (name) => {
    try {
      const { dev, ino, size, mtimeNs } = await stat(join(directory, name), { bigint: true })
      return `${dev} ${ino} ${size} ${mtimeNs}`
    } catch (error) {
      return isFileNotFound(error) ? 'missing' : messageOf(error)
    }
  })
  return (await Promise.all(states)).join('\n')
}

/** Returns why a certificate and key cannot be used together, or null. */
function faultOf({ cert, key, ca }: Identity): string | null {
  try {
    new X509Certificate(ca)
    const belongs = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))
    return belongs ? null : 'agent.key is not the key of agent.crt'
  } catch (error) {
    return `its certificate or key cannot be read (${messageOf(error)})`
  }
}

function certificateText({ cert }: Identity): string {
  const { validToDate } = new X509Certificate(cert)
  return `the certificate that ends ${validToDate.toISOString()}`
}
