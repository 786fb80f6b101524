import { createPublicKey, hash, type KeyObject, sign, verify } from 'node:crypto'
import { promisify } from 'node:util'

/** An Ed25519 key for logs (C2SP signed-note), or for cosignatures (C2SP tlog-cosignature). */
export type KeyKind = 'log' | 'witness'

const ALGORITHMS: Readonly<Record<KeyKind, number>> = { log: 1, witness: 4 }

/** A parsed verifier key (C2SP signed-note): `<name>+<id>+<base64 of the algorithm's byte and the key>`. */
export interface VerifierKey {
  readonly name: string
  readonly kind: KeyKind
  /** The first four bytes of SHA-256(name ‖ 0x0A ‖ algorithm ‖ key). Lower-case hex. */
  readonly id: string
  readonly key: KeyObject
}

export interface NoteSignature {
  readonly name: string
  /** Lower-case hex. */
  readonly id: string
  readonly bytes: Buffer
  /** The whole line, without its line feed. */
  readonly line: string
}

export interface SignedNote {
  /** With its last line feed: the bytes that are signed. */
  readonly text: string
  readonly signatures: readonly NoteSignature[]
}

/** Says that a text is no signed note, no key, or no checkpoint. */
export class MalformedNote extends Error {
  override readonly name = 'Malformed'
}

const RAW_KEY = 32
/** Precedes the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410, section 4). */
const SPKI = Buffer.from('302a300506032b6570032100', 'hex')
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/
const LINE = /^— ([^\s+]+) (\S+)$/u
// A stranger's note is read in one go.
const MAX_NOTE_BYTES = 1_000_000
const MAX_NOTE_SIGNATURES = 100

/** The bytes of a text of standard base64, padded, in its one form. Throws {@link MalformedNote}. */
export function fromBase64(text: string): Buffer {
  const bytes = BASE64.test(text) ? Buffer.from(text, 'base64') : Buffer.alloc(0)
  if (text === '' || bytes.toString('base64') !== text) throw new MalformedNote('it holds what is not base64')
  return bytes
}

/** True for a name that keys and notes may have: not empty, without blanks and `+`. */
export const isKeyName = (name: string): boolean => /^[^\s+\p{Cc}]+$/u.test(name) && name.isWellFormed()

export function verifierKeyText(name: string, kind: KeyKind, key: KeyObject): string {
  const encoded = encodedKey(kind, key)
  return `${name}+${keyId(name, encoded)}+${encoded.toString('base64')}`
}

/** Reads the text of a verifier key. Throws {@link MalformedNote}. */
export function parseVerifierKey(text: string): VerifierKey {
  const [, name = '', id = '', body = ''] = /^([^+]*)\+([0-9a-f]{8})\+(.+)$/.exec(text.trim()) ?? []
  if (!isKeyName(name)) throw new MalformedNote('a verifier key is <name>+<8 hex digits>+<base64>')
  const encoded = fromBase64(body)
  const kind = encoded[0] === ALGORITHMS.log ? 'log' : encoded[0] === ALGORITHMS.witness ? 'witness' : null
  if (kind === null || encoded.length !== RAW_KEY + 1)
    throw new MalformedNote('a verifier key of another algorithm than Ed25519')
  if (keyId(name, encoded) !== id)
    throw new MalformedNote('the id of the verifier key is not the digest of its name and key')
  const key = createPublicKey({
    key: Buffer.concat([SPKI, encoded.subarray(1)]),
    format: 'der',
    type: 'spki',
  })
  return { name, kind, id, key }
}

/** The keys among some texts. A text that is no key has signed nothing. */
export const readableKeys = (texts: readonly string[]): readonly VerifierKey[] =>
  texts.flatMap((text) => {
    try {
      return [parseVerifierKey(text)]
    } catch (error) {
      if (error instanceof MalformedNote) return []
      throw error
    }
  })

/** Reads a signed note. Verifies nothing. Throws {@link MalformedNote}. */
export function parseNote(note: string): SignedNote {
  if (note.length > MAX_NOTE_BYTES) throw new MalformedNote('a note of more than 1,000,000 characters')
  const at = note.lastIndexOf('\n\n')
  if (at < 0 || !note.endsWith('\n') || !note.isWellFormed() || CONTROL.test(note))
    throw new MalformedNote('a signed note is a text, an empty line, and lines of signatures')
  const lines = note.slice(at + 2, -1).split('\n')
  if (lines.length > MAX_NOTE_SIGNATURES) throw new MalformedNote('a note with more than 100 signatures')
  return { text: note.slice(0, at + 1), signatures: lines.map(signatureIn) }
}

const CONTROL = /[\u0000-\u0009\u000b-\u001f]/u

/** Puts a note together. `lines`: of signatures, without line feeds. */
export const noteOf = (text: string, lines: readonly string[]): string => `${text}\n${lines.join('\n')}\n`

/** Reads a line of a signature, without its line feed. Throws {@link MalformedNote}. */
export function signatureIn(line: string): NoteSignature {
  const [, name, body] = LINE.exec(line) ?? []
  const bytes = body === undefined ? Buffer.alloc(0) : fromBase64(body)
  if (name === undefined || bytes.length < 5)
    throw new MalformedNote('a line of a signature is — <name> <base64>')
  return { name, id: bytes.subarray(0, 4).toString('hex'), bytes: bytes.subarray(4), line }
}

/** Signs a note as the log of a name; returns the signature's line without its line feed. */
export function signNote(text: string, name: string, privateKey: KeyObject): string {
  return lineOf(name, 'log', privateKey, sign(null, Buffer.from(text), privateKey))
}

/** Cosigns a checkpoint (cosignature/v1) at an instant in s; returns the line without its line feed. */
export function cosignNote(text: string, name: string, privateKey: KeyObject, at: number): string {
  const time = Buffer.alloc(8)
  time.writeBigUInt64BE(BigInt(at))
  const signature = sign(null, cosignatureMessage(text, BigInt(at)), privateKey)
  return lineOf(name, 'witness', privateKey, Buffer.concat([time, signature]))
}

/** The result of a signature: bad; or good, at an instant in s if the key is a witness's. */
export type NoteVerification = { readonly good: false } | { readonly good: true; readonly at?: number }

/**
 * Verifies the signatures that name a key (C2SP signed-note, tlog-cosignature). One named twice has not
 * signed.
 */
export function verifyNoteSignature(note: SignedNote, key: VerifierKey): NoteVerification {
  const found = signatureBy(note, key)
  return found && verify(null, found.message, key.key, found.bytes) ? goodAt(found) : BAD
}

/** Does the same in a thread of the process, while others are verified. */
export async function verifyNoteAside(note: SignedNote, key: VerifierKey): Promise<NoteVerification> {
  const found = signatureBy(note, key)
  return found && (await verifyAside(null, found.message, key.key, found.bytes)) ? goodAt(found) : BAD
}

const verifyAside = promisify(verify)

const BAD: NoteVerification = { good: false }

/** A signature of the right form. `at`: of a witness. s. */
interface FoundSignature {
  readonly message: Buffer
  readonly bytes: Buffer
  readonly at?: number
}

const goodAt = ({ at }: FoundSignature): NoteVerification =>
  at === undefined ? { good: true } : { good: true, at }

function signatureBy(
  { text, signatures }: SignedNote,
  { name, id, kind }: VerifierKey,
): FoundSignature | null {
  const own = signatures.filter((signature) => signature.name === name && signature.id === id)
  const [one] = own
  if (one === undefined || own.length > 1) return null
  const { bytes } = one
  if (kind === 'log') return bytes.length === 64 ? { message: Buffer.from(text), bytes } : null
  if (bytes.length !== 72) return null
  const at = bytes.readBigUInt64BE()
  if (at > LAST_SECOND) return null
  return { message: cosignatureMessage(text, at), bytes: bytes.subarray(8), at: Number(at) }
}

/** The end of 9999. */
const LAST_SECOND = 253_402_300_799n

const cosignatureMessage = (text: string, at: bigint): Buffer =>
  Buffer.from(`cosignature/v1\ntime ${at}\n${text}`)

function lineOf(name: string, kind: KeyKind, privateKey: KeyObject, signature: Uint8Array): string {
  const id = keyId(name, encodedKey(kind, createPublicKey(privateKey)))
  return `— ${name} ${Buffer.concat([Buffer.from(id, 'hex'), signature]).toString('base64')}`
}

const encodedKey = (kind: KeyKind, key: KeyObject): Buffer =>
  Buffer.concat([
    Buffer.of(ALGORITHMS[kind]),
    key.export({ format: 'der', type: 'spki' }).subarray(SPKI.length),
  ])

const keyId = (name: string, encoded: Uint8Array): string =>
  hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), encoded])).slice(0, 8)
