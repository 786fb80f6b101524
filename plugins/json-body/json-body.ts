import type { Hash } from 'node:crypto'
import type { UnknownRecord } from '../../db/support/json.ts'
import type { CallCommitments } from '../facts.ts'
import type { Arrival, MemoryOwner, Plugin } from '../plugin.ts'
import { Refusal, type RefusalReason } from '../refusal.ts'
import { BYTES_AT_ONCE, runPromptly, type WorkSteps } from '../turns.ts'
import { type JsonScan, JUDGED_DEPTH, scanJson, scanJsonSteps, type WatchedNames } from './scan.ts'

/** The places and names of a body's members. */
export interface BodyScan {
  /** The place of each outermost member's value in the body. */
  readonly spans: JsonScan['spans']
  /** The objects that were looked into. */
  readonly objects: JsonScan['objects']
  /** The names in each outermost object. None unless names are `judged`. */
  readonly inner: JsonScan['inner']
  /** The objects in the body, as far as it was read, that have more than 1,000 members. */
  readonly wide: JsonScan['wide']
  /** The outermost names that stand twice: `json` has the last value. None unless names are `judged`. */
  readonly repeated: JsonScan['repeated']
  /** True if a member, at whatever depth, has a name that was `watched` for. */
  readonly isWatched: boolean
}

/** A body that is one JSON object. Given by `json_body`. */
export interface JsonBody {
  /** The bytes as they came, to send upstream. */
  readonly body: Buffer
  /** The parsed body: this is judged, and never written back. Of a long one each member is parsed when it is read. */
  readonly json: Readonly<Record<string, unknown>>
  readonly scan: BodyScan
  /** The commitment to a long body, which takes too long to be made at once. Absent: of any other. */
  readonly bodySha256?: string
}

type JsonBodyNeeds = Arrival & MemoryOwner & { readonly commitments?: CallCommitments }

interface JsonBodyOptions {
  readonly limit: number
  /** An empty body stands for `{}`: for requests whose every member is optional. Default: it is refused. */
  readonly empty?: boolean
  /** The reason that JSON which is no object is refused with. Default: as any other body. */
  readonly otherwise?: RefusalReason
  /** The only members that are read: another spelling is refused. Default: no name stands twice. */
  readonly judged?: JudgedNames
  /** The outermost members that are looked into if they are objects. Not if names are `judged`. */
  readonly lookedInto?: readonly string[]
  /** Names that are looked for at every depth: `isWatched` says if there are any. Default: none. */
  readonly watched?: WatchedNames | undefined
}

/**
 * Reads the body and takes it for a JSON object, or refuses with `body_invalid` (docs/protocol.md#llm-order).
 * A missing content-type is accepted; any other than `application/json` in UTF-8, and any content-encoding,
 * is not.
 */
export function jsonBody({
  limit,
  empty = false,
  otherwise = 'body_invalid',
  judged,
  lookedInto = [],
  watched,
}: JsonBodyOptions): Plugin<JsonBodyNeeds, JsonBody> {
  const names = judged ?? JUDGED_DEPTH
  const objectOf = (body: Buffer, scan: JsonScan): JsonBody => {
    if (judged) judge(scan, judged)
    if (!scan.isObject) throw new Refusal(otherwise, { message: 'The body must be a JSON object.' })
    // Proven by the line above.
    return { body, json: scan.value as UnknownRecord, scan }
  }
  /** Reads a body that may take too long to be read at once, and commits to it. */
  function* longObject(body: Buffer, commitments: CallCommitments | undefined): WorkSteps<JsonBody> {
    const read = objectOf(body, yield* scanJsonSteps(body, names, lookedInto, watched))
    if (!commitments) return read
    return { ...read, bodySha256: yield* digesting(body, commitments.hashing('body_sha256')) }
  }
  return {
    name: 'json_body',
    admit(arrival) {
      checkHeaders(arrival.headers)
      const read = (body: Buffer): JsonBody | Promise<JsonBody> => {
        if (empty && body.length === 0) return { ...EMPTY, body }
        if (body.length === 0) throw bodyRefusal('The body is empty; a JSON object is expected.')
        return body.length > BYTES_AT_ONCE
          ? runPromptly(longObject(body, arrival.commitments), arrival.hangup)
          : objectOf(body, scanJson(body, names, lookedInto, watched))
      }
      const body = arrival.readBody(limit, arrival)
      return body instanceof Promise ? body.then(read) : read(body)
    },
  }
}

function checkHeaders(headers: Arrival['headers']): void {
  requireIdentity(headers)
  const type = headers['content-type']
  if (type !== undefined && !isJsonType(type)) {
    throw bodyRefusal('The body must be JSON in UTF-8: send content-type: application/json.')
  }
}

/** Refuses a compressed body, and says which coding is accepted (RFC 9110 §15.5.16). */
export function requireIdentity({ 'content-encoding': coding = 'identity' }: Arrival['headers']): void {
  if (coding.trim().toLowerCase() !== 'identity')
    throw new Refusal('body_encoded', { headers: { 'accept-encoding': 'identity' } })
}

const bodyRefusal = (message: string): Refusal => new Refusal('body_invalid', { message })

/** `application/json`, with parameters or not; a charset, when named, must be UTF-8 (RFC 8259 §8.1). */
function isJsonType(value: string): boolean {
  if (value === 'application/json') return true
  const [type = '', ...parameters] = value.toLowerCase().split(';')
  if (type.trim() !== 'application/json') return false
  return parameters
    .map((parameter) => parameter.trim())
    .filter((parameter) => parameter.startsWith('charset='))
    .every((parameter) => /^charset="?utf-?8"?$/.test(parameter))
}

/**
 * The letters that readers who ignore case take for another one: those of ASCII; the long s and the Kelvin
 * sign, which Go's `encoding/json` folds (CVE-2026-27896); and the two i of Turkish.
 */
const FOLDED_LETTERS = /[A-Z\u0130\u0131\u017f\u212a]/g
const FOLDS: Readonly<Record<string, string>> = {
  '\u0130': 'i',
  '\u0131': 'i',
  '\u017f': 's',
  '\u212a': 'k',
}

export const foldedName = (name: string): string =>
  PLAIN.test(name) ? name : name.replace(FOLDED_LETTERS, (letter) => FOLDS[letter] ?? letter.toLowerCase())

// Nearly every name that an API has.
const PLAIN = /^[a-z0-9_]*$/

/** The names that this service reads of one message: no other spelling of one may stand next to it. */
export class JudgedNames {
  /** Keyed by folded name. */
  readonly #names: ReadonlyMap<string, string>
  /** The length of the longest. Folding leaves a name as long as it is. */
  readonly #maxLength: number

  constructor(names: Iterable<string>) {
    this.#names = new Map([...names].map((name) => [foldedName(name), name]))
    this.#maxLength = Math.max(...[...this.#names.keys()].map(({ length }) => length))
  }

  /** Returns whether `name` is a judged one, in whatever case. */
  has(name: string): boolean {
    return name.length <= this.#maxLength && this.#names.has(foldedName(name))
  }

  /** Returns the judged name that another reader takes `name` for, though it is not it, or null. */
  mistakenFor(name: string): string | null {
    if (name.length > this.#maxLength) return null
    const judged = this.#names.get(foldedName(name))
    return judged === undefined || judged === name ? null : judged
  }
}

const MAX_OUTERMOST = 1_000

/** Refuses a member that another reader takes for one that is read here: it would do something unjudged. */
function judge({ spans }: JsonScan, judged: JudgedNames): void {
  if (spans.size > MAX_OUTERMOST) throw bodyRefusal(`The body has more than ${MAX_OUTERMOST} members.`)
  for (const name of spans.keys()) {
    const mistaken = judged.mistakenFor(name)
    if (mistaken === null) continue
    throw bodyRefusal(`The body has a member ${name}, which some readers take for ${mistaken}. Leave it out.`)
  }
}

const NOTHING: ReadonlyMap<string, never> = new Map<string, never>()
const EMPTY: Omit<JsonBody, 'body'> = {
  json: {},
  scan: {
    spans: NOTHING,
    objects: NOTHING,
    inner: NOTHING,
    wide: new Set(),
    repeated: new Set(),
    isWatched: false,
  },
}

/** The digest is made in pieces of so many bytes. */
const PIECE = 262_144

function* digesting(body: Buffer, digest: Hash): WorkSteps<string> {
  for (let at = 0; at < body.length; at += PIECE) {
    digest.update(body.subarray(at, at + PIECE))
    yield
  }
  return digest.digest('hex')
}
