import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../../plugins/json-body/bytes.ts'
import { PlainBytes, scalarEnd } from '../../../plugins/json-body/plain-bytes.ts'
import type { WatchedNames } from '../../../plugins/json-body/scan.ts'
import type { WorkSteps } from '../../../plugins/turns.ts'
import type { ApiWire } from '../dialects/dialect.ts'
import { ITEM_CONTENT, isReadById, READ_NAMES, STATE_NAMES, type StateNames } from './names.ts'

/** An id of a request that names what its provider keeps. */
export interface NamedId {
  /** The place in the body, as `input[0].content[1].file_id`. */
  readonly at: string
  readonly id: string
}

/** The ids that one request may name. */
export const MAX_NAMED_IDS = 1_000
/** Bytes. A longer text is nobody's id: its beginning stands for it. */
const MAX_ID = 1_024
/** Bytes of a name in a place: as it is written. A deep place with long names would take long to be said. */
const MAX_SHOWN = 64
/** A step ends after so many tokens; a string is passed in pieces of so many bytes. */
const STEP_TOKENS = 512
const PIECE = 262_144
const SPACE = 0x20

/** The words that name nothing. */
const WORDS: ReadonlySet<string> = new Set(['null', 'true', 'false'])

interface OpenValue {
  readonly isList: boolean
  /** The member that is being read, of an object, if its name says anything; else empty. */
  name: string
  /** The place of that name. */
  nameStart: number
  nameEnd: number
  /** The place in a list. */
  index: number
  /** True: nothing in it is looked at. */
  readonly isOpaque: boolean
  /** True: its members have names of the caller's. */
  readonly isFree: boolean
  /** True: each text of the list is an id. */
  readonly isIds: boolean
  /** True: its `id` is one. */
  readonly isHolder: boolean
  /** An item of the list of items, as far as it was read; null: it is none. */
  readonly item: FoundItem | null
  /** The text of the member `type`; empty if there is none. */
  type: string
  /** The place among the finds of a skill's id, until the `type` tells whose it is; -1: none. */
  skill: number
}

interface FoundItem {
  readonly ids: string[]
  /** The members that are not null. True: there is something in it. */
  readonly members: Map<string, boolean>
}

/**
 * Finds the ids by which a request names what its provider keeps, at most one more than {@link MAX_NAMED_IDS}. `bytes`
 * is sound JSON. Of a name that stands twice in an object, each counts: readers differ in which one they take.
 */
export const namedIdsSteps = (bytes: Buffer, wire: ApiWire): WorkSteps<readonly NamedId[]> =>
  namedTextsSteps(bytes, STATE_NAMES[wire], READ_NAMES[wire])

/** Does what {@link namedIdsSteps} does, by other names. `read`: those that `names` makes. */
export function* namedTextsSteps(
  bytes: Buffer,
  names: StateNames,
  read: WatchedNames,
): WorkSteps<readonly NamedId[]> {
  const finder = new IdFinder(bytes, names, read)
  while (!finder.step()) yield
  return finder.found
}

class IdFinder {
  readonly found: NamedId[] = []
  readonly #bytes: Buffer
  readonly #names: StateNames
  readonly #read: WatchedNames
  readonly #plain: PlainBytes
  readonly #open: OpenValue[] = []
  #top: OpenValue | null = null
  #at = 0
  /** The place at which a long string goes on; 0: none is being read. */
  #rest = 0
  #isName = false
  /** True: the last token was the bracket that opens an object or a list. */
  #isEmpty = false

  constructor(bytes: Buffer, names: StateNames, read: WatchedNames) {
    this.#bytes = bytes
    this.#names = names
    this.#read = read
    this.#plain = new PlainBytes(bytes)
  }

  /** Returns true at the end of the text, and once too many are found. */
  step(): boolean {
    const bytes = this.#bytes
    for (let tokens = 0; tokens < STEP_TOKENS && this.#at < bytes.length; tokens += 1) {
      if (this.#rest === 0) this.#token(bytes[this.#at] ?? 0)
      if (this.#rest > 0) this.#string()
      // The rest of a long string is for the next step.
      if (this.#rest > 0) return false
    }
    return this.#at >= bytes.length || this.found.length > MAX_NAMED_IDS
  }

  #token(byte: number): void {
    if (byte === COLON || byte <= SPACE) {
      this.#at += 1
      return
    }
    if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) this.#leave()
    this.#isEmpty = byte === OPEN_BRACE || byte === OPEN_BRACKET
    if (byte === QUOTE) this.#rest = this.#at + 1
    else if (this.#isEmpty) this.#enter(byte === OPEN_BRACKET)
    else if (byte === COMMA) this.#next()
    else if (byte !== CLOSE_BRACE && byte !== CLOSE_BRACKET) this.#scalar()
    else this.#at += 1
  }

  #next(): void {
    const top = this.#top
    if (top?.isList) top.index += 1
    this.#isName = top?.isList === false
    this.#at += 1
  }

  /** Passes the string that goes on, or a piece of it. */
  #string(): void {
    const bytes = this.#bytes
    const until = Math.min(this.#rest + PIECE, bytes.length)
    const end = this.#plain.stringEnd(this.#rest, until)
    if (end >= until) {
      this.#rest = end
      return
    }
    if (bytes[end] !== QUOTE) throw new Error('the body is no sound JSON, though it was scanned')
    const start = this.#at + 1
    this.#at = end + 1
    this.#rest = 0
    const top = this.#top
    if (!top) return
    if (this.#isName) {
      top.name = this.#nameAt(start, end)
      top.nameStart = start
      top.nameEnd = end
      this.#isName = false
      return
    }
    noteMember(top, end > start)
    if (this.#isRead(top)) this.#value(top, textAt(bytes, start, end))
  }

  #nameAt(start: number, end: number): string {
    const plain = this.#read.nameAt(this.#bytes, start, end)
    if (plain !== undefined || end - start > MAX_ID) return plain ?? ''
    return hasEscape(this.#bytes, start, end) ? textAt(this.#bytes, start, end) : ''
  }

  #scalar(): void {
    const bytes = this.#bytes
    const end = Math.max(scalarEnd(bytes, this.#at), this.#at + 1)
    const top = this.#top
    const text = bytes.toString('latin1', this.#at, Math.min(end, this.#at + MAX_ID))
    this.#at = end
    if (!top || text === 'null') return
    noteMember(top, true)
    if (this.#isRead(top) && !WORDS.has(text)) this.#value(top, text)
  }

  /** Tells if a text that stands here says anything. */
  #isRead({ isOpaque, isList, isIds, name }: OpenValue): boolean {
    return !isOpaque && (isList ? isIds : name !== '')
  }

  #value(top: OpenValue, text: string): void {
    const { name, isList, item } = top
    if (isList) this.#add(text)
    // Of two types nobody knows which one is read: it has neither.
    else if (name === 'type') top.type = top.type === '' ? text : `${top.type} ${text}`
    else if (name === 'id') {
      item?.ids.push(text)
      if (top.isHolder) this.#add(text)
    } else if (!top.isFree && this.#namesOne(name)) {
      if (name === 'skill_id') top.skill = this.found.length
      this.#add(text)
    }
  }

  #namesOne(name: string): boolean {
    const { ids, outer, holders } = this.#names
    return ids.includes(name) || holders.includes(name) || (this.#open.length === 1 && outer.includes(name))
  }

  #enter(isList: boolean): void {
    const outer = this.#top
    const { opaque, free, holders, objects, ids } = this.#names
    const name = outer && !outer.isList && !outer.isFree ? outer.name : ''
    const isNamed = name !== ''
    const isOpaque = outer?.isOpaque === true || (isNamed && opaque.includes(name))
    const entered: OpenValue = {
      ...{ isList, name: '', nameStart: 0, nameEnd: 0, index: 0, isOpaque, type: '', skill: -1 },
      isFree: isNamed && free.includes(name),
      isIds: isNamed && isList && this.#isIdList(name, ids),
      isHolder: isNamed && !isList && (holders.includes(name) || objects.includes(name)),
      item: !isList && this.#isItem() ? { ids: [], members: new Map() } : null,
    }
    this.#open.push(entered)
    this.#top = entered
    this.#isName = !isList
    this.#at += 1
  }

  #isIdList(name: string, ids: readonly string[]): boolean {
    return ids.includes(name) || (this.#open.length === 1 && this.#names.outer.includes(name))
  }

  /** Tells if what begins here stands in the outermost list of items. */
  #isItem(): boolean {
    const [root, list] = this.#open
    return this.#open.length === 2 && list?.isList === true && root?.name === this.#names.items
  }

  #leave(): void {
    const left = this.#open.pop()
    const outer = this.#open.at(-1) ?? null
    this.#top = outer
    this.#isName = false
    if (!left) return
    if (outer) noteMember(outer, !this.#isEmpty)
    // Those of the vendor's own are everybody's.
    if (left.skill >= 0 && left.type === 'anthropic') this.found.splice(left.skill, 1)
    const { item, type } = left
    if (item && !hasContent(type, item.members)) for (const id of item.ids) this.#add(id, '.id')
  }

  #add(id: string, further = ''): void {
    if (id !== '') this.found.push({ at: this.#path() + further, id })
  }

  #path(): string {
    const parts = this.#open.map(({ isList, nameStart, nameEnd, index }) =>
      isList
        ? `[${index}]`
        : `.${this.#bytes.toString('utf8', nameStart, Math.min(nameEnd, nameStart + MAX_SHOWN))}`,
    )
    return parts.join('').replace(/^\./, '')
  }
}

/** Notes a member of an item. Of one that stands twice, an empty one counts: some readers take that. */
function noteMember({ item, name }: OpenValue, isFull: boolean): void {
  item?.members.set(name, isFull && item.members.get(name) !== false)
}

/** Tells if an item holds its content: one without a type is a message if it has any, else a reference. */
function hasContent(type: string, members: FoundItem['members']): boolean {
  const kind = type === '' ? 'message' : type
  const member = Object.hasOwn(ITEM_CONTENT, kind) ? ITEM_CONTENT[kind] : null
  const isFull = typeof member === 'string' ? members.get(member) : undefined
  return isFull === true || (isFull === false && !isReadById(kind))
}

/** Reads the text between two quotes; of a long one its beginning. */
function textAt(bytes: Buffer, start: number, end: number): string {
  if (end - start > MAX_ID) return bytes.toString('latin1', start, start + MAX_ID)
  const text = bytes.toString('utf8', start, end)
  return hasEscape(bytes, start, end) ? unescaped(text) : text
}

function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (bytes[at] === BACKSLASH) return true
  return false
}

function unescaped(text: string): string {
  // Of sound JSON, a text is one.
  const read: unknown = JSON.parse(`"${text}"`)
  return String(read)
}
