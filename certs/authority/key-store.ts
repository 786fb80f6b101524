import { createCipheriv, createDecipheriv, randomBytes, scrypt, scryptSync } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, rename, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'

// The start of a sealed text: form and version, then every parameter that opening it takes.
const FORM = 'sallyport-sealed.v1.scrypt-aes256gcm'
// 80 ms and 32 MiB for each guess at the passphrase.
const COST = { N: 32_768, r: 8, p: 1, maxmem: 64 * 1024 * 1024 }
const PARAMETERS = `${COST.N}-${COST.r}-${COST.p}`
const SALT_BYTES = 16
const NONCE_BYTES = 12
const TAG_BYTES = 16
const CIPHER = 'aes-256-gcm'

/**
 * Seals a secret with a passphrase: scrypt (RFC 7914), then AES-256-GCM. One line of text that says its own
 * form, version and parameters, all of them authenticated. The same secret never seals to the same text
 * twice. Throws an Error if the passphrase is empty. Blocks the event loop for the 80 ms of the key
 * derivation if the last sealed text was of another passphrase.
 */
export function seal(plaintext: string, passphrase: string): string {
  // All texts that one process seals have one salt, so that the next start derives one key for them. An
  // attacker who guesses at the passphrase gains nothing: one of the texts is enough to try a guess on.
  const salt = lastDerivedKey?.passphrase === passphrase ? lastDerivedKey.salt : randomBytes(SALT_BYTES)
  const nonce = randomBytes(NONCE_BYTES)
  const header = `${FORM}.${PARAMETERS}.${salt.toString('base64url')}.${nonce.toString('base64url')}`
  lastDerivedKey = derive(passphrase, salt)
  const cipher = createCipheriv(CIPHER, lastDerivedKey.key, nonce).setAAD(Buffer.from(header))
  const sealed = Buffer.concat([cipher.update(plaintext, 'utf8'), cipher.final(), cipher.getAuthTag()])
  return `${header}.${sealed.toString('base64url')}\n`
}

/**
 * Opens a sealed text and returns the secret. Throws one sentence if the text is no sealed text, was altered,
 * or the passphrase is another.
 */
export function unseal(sealed: string, passphrase: string): string {
  const text = sealed.trim()
  const header = text.slice(0, text.lastIndexOf('.'))
  const [salt, nonce, body] = text.split('.').slice(-3).map(bytesOf)
  // Parameters are compared, not obeyed: an altered file must not choose how much memory we spend.
  const known = text.startsWith(`${FORM}.${PARAMETERS}.`) && text.split('.').length === FORM_PARTS
  if (
    !known ||
    salt?.length !== SALT_BYTES ||
    nonce?.length !== NONCE_BYTES ||
    !body ||
    body.length < TAG_BYTES
  ) {
    throw new Error(`this is not a text sealed as ${FORM}`)
  }
  const derived = derive(passphrase, salt)
  const decipher = createDecipheriv(CIPHER, derived.key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(header)).setAuthTag(body.subarray(-TAG_BYTES))
  const opened = decipher.update(body.subarray(0, -TAG_BYTES))
  try {
    const secret = Buffer.concat([opened, decipher.final()]).toString('utf8')
    // Only now: an altered text must not choose the salt of later ones.
    lastDerivedKey = derived
    return secret
  } catch (cause) {
    throw new Error('the passphrase is wrong, or the sealed text was changed', {
      cause,
    })
  }
}

// form, version, algorithms, parameters, salt, nonce, body
const FORM_PARTS = 7

const bytesOf = (text: string): Buffer => Buffer.from(text, 'base64url')

interface DerivedKey {
  readonly passphrase: string
  readonly salt: Buffer
  readonly key: Buffer
}

// Owned by seal() and unseal(): the key that the last of them to succeed used. The passphrase is in memory
// anyway, for the next seal.
let lastDerivedKey: DerivedKey | null = null

// Owned by deriveAhead().
let aheadKey: DerivedKey | null = null

const knownKey = (passphrase: string, salt: Buffer): DerivedKey | undefined =>
  [lastDerivedKey, aheadKey].find((known) => known?.passphrase === passphrase && known.salt.equals(salt)) ??
  undefined

function derive(passphrase: string, salt: Buffer): DerivedKey {
  if (passphrase === '') throw new Error('the passphrase that seals keys is empty')
  return knownKey(passphrase, salt) ?? { passphrase, salt, key: scryptSync(passphrase, salt, 32, COST) }
}

/** Derives the key of a sealed text beside the event loop: opening it afterwards blocks nothing. */
export async function deriveAhead(sealed: string, passphrase: string): Promise<void> {
  const salt = bytesOf(sealed.trim().split('.').at(-3) ?? '')
  if (passphrase === '' || salt.length !== SALT_BYTES || knownKey(passphrase, salt)) return
  aheadKey = { passphrase, salt, key: await scryptBeside(passphrase, salt, 32, COST) }
}

const scryptBeside = promisify<string, Buffer, number, typeof COST, Buffer>(scrypt)

/**
 * Writes a file that only its owner may read (mode 0600), whole or not at all: after a crash at any moment
 * the path holds the old text or the new one. A leftover `.<name>.<random>.tmp` may remain alongside it;
 * nothing reads it.
 */
export async function writePrivateFile(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    await withFile(await open(temporary, 'wx', 0o600), async (file) => {
      await file.writeFile(text)
      await file.sync()
    })
    await rename(temporary, path)
  } catch (error) {
    await nullIfMissing(unlink(temporary))
    throw error
  }
  await syncFolder(dirname(path))
}

/** Makes the names in a folder durable: a rename is only a promise until its folder is synced. */
export async function syncFolder(path: string): Promise<void> {
  await withFile(await open(path, constants.O_RDONLY), (folder) => folder.sync())
}

/**
 * Reads a file that only its owner may read. Throws one sentence with the path and the command that mends it
 * if group or others may read or write it. Checks the mode of the open file, so that no other file can be
 * swapped in between.
 */
export async function readPrivateFile(path: string): Promise<string> {
  return withFile(await open(path, constants.O_RDONLY), async (file) => {
    const { mode } = await file.stat()
    if ((mode & 0o066) !== 0) {
      throw new Error(`${path} can be read or written by users other than its owner: run chmod 600 ${path}`)
    }
    return file.readFile('utf8')
  })
}

async function withFile<T>(file: FileHandle, use: (file: FileHandle) => Promise<T>): Promise<T> {
  try {
    return await use(file)
  } finally {
    await file.close()
  }
}

/** Resolves with what a file holds; null if there is no such file. */
export async function nullIfMissing<T>(read: Promise<T>): Promise<T | null> {
  try {
    return await read
  } catch (error) {
    if (isFileNotFound(error)) return null
    throw error
  }
}

/** Tells whether an error of node:fs says that there is no such file. */
export function isFileNotFound(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}
