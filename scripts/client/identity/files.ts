import { randomBytes } from 'node:crypto'
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { nullIfMissing, syncFolder } from '../../../certs/authority/key-store.ts'
import { dpopKeyText } from '../signing/dpop-key.ts'
import type { Identity } from './identity.ts'

export interface IdentityDraft {
  /** Writes all files and gives the directory its name: whole, or not at all. */
  readonly publish: (identity: Identity) => Promise<void>
  /** Leaves nothing behind. Does nothing after `publish`. */
  readonly discard: () => Promise<void>
}

/**
 * Prepares to write an identity directory. Throws if something is there already, or it cannot be written:
 * before anything is enrolled, because a key is shown once.
 */
export async function draftIdentity(directory: string): Promise<IdentityDraft> {
  const target = resolve(directory)
  if (!(await isFree(target))) {
    throw new Error(`${directory} is not empty: choose another directory, or move that identity away`)
  }
  await mkdir(dirname(target), { recursive: true, mode: 0o700 })
  const place = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`)
  await mkdir(place, { mode: 0o700 })
  return {
    publish: async (identity) => {
      for (const [name, text] of Object.entries(identityFileTexts(identity)))
        await write(join(place, name), text)
      await syncFolder(place)
      // Takes the place of an empty directory; fails if somebody has put something there meanwhile.
      await rename(place, target)
      await syncFolder(dirname(target))
    },
    discard: () => rm(place, { recursive: true, force: true }),
  }
}

export function identityFileTexts({
  url,
  agentId,
  ca,
  cert,
  key,
  dpopJwk,
}: Identity): Readonly<Record<string, string>> {
  return {
    'agent.crt': cert,
    'agent.key': key,
    'org-ca.crt': ca,
    'dpop.jwk': dpopKeyText(dpopJwk),
    'gateway.json': gatewayText(url, agentId),
  }
}

export const gatewayText = (url: string, agentId: string | null): string =>
  `${JSON.stringify({ url, agent_id: agentId })}\n`

const isFree = async (path: string): Promise<boolean> =>
  ((await nullIfMissing(readdir(path))) ?? []).length === 0

async function write(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
}
