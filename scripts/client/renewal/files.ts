import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto'
import { lstat, readFile, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { nullIfMissing, syncFolder, writePrivateFile } from '../../../certs/authority/key-store.ts'
import { writePrivateOnceSync } from '../identity/private-file.ts'

// Each waits next to the file that it replaces. A key is there before it is certified: after a lost answer
// the same key is used again.
const KEY = 'agent.key'
const CERT = 'agent.crt'
const NEXT_KEY = 'agent.key.next'
const NEXT_CERT = 'agent.crt.next'

/**
 * Returns the key of the next certificate: the one that waits in the directory, or a new EC P-256 key,
 * written there with mode 0600. Two processes that make one at once both get the one that stayed. Throws if
 * the directory cannot be written, or holds links: their maker renews the files they lead to.
 */
export async function nextKey(directory: string): Promise<KeyObject> {
  for (const name of [KEY, CERT]) {
    if ((await lstat(join(directory, name))).isSymbolicLink()) {
      throw new Error(`${join(directory, name)} is a link: renew the file that it leads to`)
    }
  }
  const path = join(directory, NEXT_KEY)
  const waiting = await keyIn(path)
  if (waiting !== null) return waiting
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  writePrivateOnceSync(path, String(privateKey.export({ type: 'pkcs8', format: 'pem' })))
  return (await keyIn(path)) ?? privateKey
}

/**
 * Puts a certificate for the waiting key, and that key, in the places of those before. Throws if it is for
 * another key: nothing has changed then.
 */
export async function putNext(directory: string, chainPem: string): Promise<void> {
  const next = await keyIn(join(directory, NEXT_KEY))
  if (next !== null && isOf(chainPem, next)) await writePrivateFile(join(directory, NEXT_CERT), chainPem)
  else if (!(await isOfCurrent(directory, chainPem))) {
    throw new Error('the gateway answered with a certificate for another key')
  }
  await settleNext(directory)
}

/** Puts a key and its certificate, made elsewhere, in the places of those before. Throws if they do not match. */
export async function putPair(directory: string, keyPem: string, chainPem: string): Promise<void> {
  await writePrivateFile(join(directory, NEXT_KEY), keyPem)
  await putNext(directory, chainPem)
}

/**
 * Ends a replacement that a crash interrupted; removes files that belong to no key. Does nothing if none was
 * begun. Two processes may do it at once.
 */
export async function settleNext(directory: string): Promise<void> {
  const chain = await textIn(join(directory, NEXT_CERT))
  if (chain === null) return
  const key = await keyIn(join(directory, NEXT_KEY))
  const place = (name: string): string => join(directory, name)
  if (key !== null && isOf(chain, key)) await nullIfMissing(rename(place(NEXT_KEY), place(KEY)))
  if (await isOfCurrent(directory, chain)) await nullIfMissing(rename(place(NEXT_CERT), place(CERT)))
  else await nullIfMissing(unlink(place(NEXT_CERT)))
  await syncFolder(directory)
}

async function isOfCurrent(directory: string, chainPem: string): Promise<boolean> {
  const key = await keyIn(join(directory, KEY))
  return key !== null && isOf(chainPem, key)
}

function isOf(chainPem: string, key: KeyObject): boolean {
  try {
    return new X509Certificate(chainPem).checkPrivateKey(key)
  } catch {
    // No certificate at all, or cut off.
    return false
  }
}

async function keyIn(path: string): Promise<KeyObject | null> {
  const text = await textIn(path)
  try {
    return text === null ? null : createPrivateKey(text)
  } catch (error) {
    throw new Error(`${path} is not a private key that can be read`, { cause: error })
  }
}

const textIn = (path: string): Promise<string | null> => nullIfMissing(readFile(path, 'utf8'))
