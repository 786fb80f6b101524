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
const CLOSE_BRACE = 0x7d

/** The places of the marks of a leaf's detail, and of the start and end of two members of that. */
export const DETAIL_NOTES = {
  marks: 2 * MEMBERS.length,
  authority: 2 * MEMBERS.length + 1,
  path: 2 * MEMBERS.length + 3,
}

/** The numbers that say where the members of a leaf are: start and end of each value, alike if it is missing; then notes. */
export const PLACES_PER_LEAF = 2 * MEMBERS.length + 5

/** The first of a member's two. A name that is looked up at run time takes as long as reading a member. */
export const PLACE_OF = Object.fromEntries(MEMBERS.map(([name], index) => [name, 2 * index])) as Readonly<
  Record<LeafMember, number>
>

/** The bytes before the value of a member: its name, and the comma before that. */
export const labelLength = (member: LeafMember): number => LABELS[PLACE_OF[member] / 2]?.length ?? 0

const json = new CanonicalBytes()

/**
 * Reads the leaf of a row, or the line of an export, in the bytes of valid UTF-8, if it is canonical beyond
 * doubt ({@link CanonicalBytes}): every member there is, in order, and of its type. Writes where they are to
 * `places`, from `at` on. Returns the end of the leaf or line; -1 if it is not canonical beyond doubt.
 * `isLine`: of an export.
 */
export function readLeaf(
  bytes: Uint8Array,
  from: number,
  isLine: boolean,
  places: Int32Array,
  at: number,
): number {
  json.bytes = bytes
  json.at = from
  for (let index = 0; index < KINDS.length; index += 1) {
    const [kind, label] = [KINDS[index], LABELS[index]]
    const isThere = label !== undefined && (kind !== 'added' || isLine) && json.literal(label)
    places[at + 2 * index] = json.at
    if (!(isThere ? isValue(kind) : kind === 'added')) return -1
    places[at + 2 * index + 1] = json.at
  }
  const { marks, authority, path } = json
  places[at + DETAIL_NOTES.marks] = marks
  ;[places[at + DETAIL_NOTES.authority], places[at + DETAIL_NOTES.authority + 1]] = authority
  ;[places[at + DETAIL_NOTES.path], places[at + DETAIL_NOTES.path + 1]] = path
  return bytes[json.at] === CLOSE_BRACE ? json.at + 1 : -1
}

function isValue(kind: LeafMemberKind | undefined): boolean {
  if (kind === 'object') return json.detail()
  if (kind === 'integer') return json.integer()
  return json.text() || (kind === 'text or null' && json.literal(NULL_BYTES))
}
