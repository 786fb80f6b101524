import { CanonicalBytes, NULL_BYTES } from './bytes.ts'

type LeafMemberKind = 'text' | 'text or null' | 'integer' | 'object' | 'added'

/** The members of a leaf in their order (docs/ledger.md#row), and the places at which an export adds some. */
const MEMBERS = [
  ['action', 'text'],
  ['cert_thumbprint', 'text or null'],
  ['config_digest', 'text'],
  ['detail', 'object'],
  ['dpop_jkt', 'text or null'],
  ['model', 'text or null'],
  ['prev_hash', 'text'],
  ['principal_id', 'text or null'],
  ['principal_name', 'added'],
  ['principal_type', 'text or null'],
  ['provider', 'text or null'],
  ['recorded_at', 'text'],
  ['request_id', 'text or null'],
  ['result', 'added'],
  ['row_hash', 'added'],
  ['seq', 'integer'],
  ['status', 'text'],
  ['stream', 'text'],
  ['subject_name', 'added'],
  ['tool', 'text or null'],
  ['v', 'integer'],
  ['version', 'text'],
] as const satisfies readonly (readonly [string, LeafMemberKind])[]

export type LeafMember = (typeof MEMBERS)[number][0]

const KINDS: readonly LeafMemberKind[] = MEMBERS.map(([, kind]) => kind)
const LABELS: readonly Buffer[] = MEMBERS.map(([name], index) =>
  Buffer.from(`${index === 0 ? '{' : ','}"${name}":`),
)
const INDEX = Object.fromEntries(MEMBERS.map(([name], index) => [name, index])) as Record<LeafMember, number>
const [CLOSE_BRACE, QUOTE, ZERO, MINUS] = [0x7d, 0x22, 0x30, 0x2d]

/**
 * Reads the leaf of a row, or the line of an export, in the bytes of valid UTF-8, if it is canonical beyond
 * doubt ({@link CanonicalBytes}): every member there is, in order, and of its type. The result stays until
 * the next reading.
 */
export class LeafReader {
  readonly #json = new CanonicalBytes()
  /** Start and end of each member's value; 0 and 0 if it is missing. */
  readonly #from = new Int32Array(MEMBERS.length)
  readonly #to = new Int32Array(MEMBERS.length)
  #bytes: Buffer = Buffer.alloc(0)

  /** Returns the end of the leaf or line; -1 if it is not canonical beyond doubt. `isLine`: of an export. */
  read(bytes: Buffer, from: number, isLine: boolean): number {
    const found = this.#json
    this.#bytes = bytes
    found.bytes = bytes
    found.at = from
    for (let index = 0; index < KINDS.length; index += 1) if (!this.#member(index, isLine)) return -1
    return bytes[found.at] === CLOSE_BRACE ? found.at + 1 : -1
  }

  #member(index: number, isLine: boolean): boolean {
    const found = this.#json
    const kind = KINDS[index]
    const label = LABELS[index]
    const isThere = label !== undefined && (kind !== 'added' || isLine) && found.literal(label)
    this.#from[index] = found.at
    const isGood = isThere ? this.#value(kind) : kind === 'added'
    this.#to[index] = found.at
    return isGood
  }

  #value(kind: LeafMemberKind | undefined): boolean {
    const found = this.#json
    if (kind === 'object') return found.object()
    if (kind === 'integer') return found.integer()
    return found.text() || (kind === 'text or null' && found.literal(NULL_BYTES))
  }

  /** The start of a member, with the comma before it. */
  start(member: LeafMember): number {
    const index = INDEX[member]
    return (this.#from[index] ?? 0) - (LABELS[index]?.length ?? 0)
  }

  /** The end of a member. */
  end(member: LeafMember): number {
    return this.#to[INDEX[member]] ?? 0
  }

  has(member: LeafMember): boolean {
    const index = INDEX[member]
    return this.#to[index] !== this.#from[index]
  }

  text(member: LeafMember): string {
    const index = INDEX[member]
    return this.#bytes.toString('utf8', (this.#from[index] ?? 0) + 1, (this.#to[index] ?? 0) - 1)
  }

  textOrNull(member: LeafMember): string | null {
    return this.#bytes[this.#from[INDEX[member]] ?? 0] === QUOTE ? this.text(member) : null
  }

  /** -1 of one that is negative. */
  integer(member: LeafMember): number {
    const index = INDEX[member]
    if (this.#bytes[this.#from[index] ?? 0] === MINUS) return -1
    const to = this.#to[index] ?? 0
    let value = 0
    for (let at = this.#from[index] ?? 0; at < to; at += 1) value = value * 10 + (this.#bytes[at] ?? 0) - ZERO
    return value
  }
}
