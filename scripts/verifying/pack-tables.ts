import { createHash, type Hash } from 'node:crypto'
import { stateText } from '../../db/ledger/authority/ledger-state.ts'
import { type PrincipalSet, PrincipalSets } from '../../db/ledger/authority/principal-sets.ts'
import {
  CSV_HEAD,
  csvLine,
  isAboutTools,
  isGrant,
  isRefusal,
  isSignIn,
  JSON_LIST,
  setsText,
} from '../../db/ledger/read/evidence-tables.ts'
import type { StoredRow } from '../../db/ledger/record/leaf.ts'
import type { DecisionRecomputer } from '../../db/ledger/verify/recompute.ts'
import { isObject } from '../../db/support/json.ts'
import { digestsIn, type EvidencePack, parseObject } from './pack.ts'
import type { TabledPage } from './pack-rows.ts'

/** Compares the tables of a pack with those that its rows make. */
export interface PackTables {
  /** Takes the lines of CSV of rows that come. */
  readonly begin: (page: TabledPage) => void
  /** Takes a row of an export. */
  readonly see: (row: StoredRow) => void
  /** Faults, each as a sentence. */
  readonly findings: () => Promise<readonly string[]>
}

const LIMIT = 64 * 1024 * 1024

export async function packTables(
  { zip, first, csv }: EvidencePack,
  { state }: Pick<DecisionRecomputer, 'state'>,
): Promise<PackTables> {
  const isWhole = first === 0 || zip.names.includes('state-start.json')
  const heldText = setsText(new PrincipalSets(state().principal_sets))
  const before = zip.names.includes('sets-start.json')
    ? setsIn(await zip.bytes('sets-start.json', LIMIT))
    : null
  const sets = new PrincipalSets(before ?? [])
  const running = new Map<string, TableDigest>()
  const into = (name: string, text: string | Uint8Array): void => {
    const digest = running.get(name) ?? new TableDigest()
    running.set(name, digest)
    digest.add(text)
  }
  for (const name of ['rows.csv', 'refusals.csv']) into(name, CSV_HEAD)
  for (const name of ['grants.ndjson', 'sign-ins.ndjson']) into(name, '')
  let tools = 0
  let [page, at]: [TabledPage | null, number] = [null, 0]
  /** True while the table has all lines of the page already. */
  let isTabled = false
  /** The line of CSV of a row, as its page has it or anew. */
  function cellsOf(row: StoredRow, at: number): string | Uint8Array {
    const [from, to] = [page?.ends[at - 1] ?? 0, page?.ends[at] ?? 0]
    return page && from < to ? page.csv.subarray(from, to) : csvLine(row, csv)
  }
  return {
    begin: (next) => {
      page = next
      at = 0
      // Those of a page of which a row is bad are compared with nothing.
      isTabled = next.ends.every((end, row) => end > (next.ends[row - 1] ?? 0))
      if (isTabled) into('rows.csv', next.csv)
    },
    see: (row) => {
      sets.add(row)
      const own = at++
      if (!isTabled) into('rows.csv', cellsOf(row, own))
      if (isRefusal(row)) into('refusals.csv', cellsOf(row, own))
      if (isGrant(row)) into('grants.ndjson', `${lineOf(row)}\n`)
      if (isAboutTools(row)) into('tools.json', JSON_LIST.before(tools++) + lineOf(row))
      if (isSignIn(row)) into('sign-ins.ndjson', `${lineOf(row)}\n`)
    },
    findings: async () => {
      into('sets-end.json', setsText(sets))
      into('tools.json', JSON_LIST.end(tools))
      if (zip.names.includes('state-end.json')) into('state-end.json', stateText(state()))
      const sums = new Map(await digestsIn(zip))
      const wrong = [...running].filter(([name, hash]) => sums.get(name) !== hash.hex())
      const findings = wrong.map(([name]) => `${name} is not what the rows make`)
      if (before === null || (isWhole && setsText(new PrincipalSets(before)) !== heldText))
        findings.unshift('sets-start.json is not what stood before the rows')
      return findings
    },
  }
}

/** The digest of a table, of which some lines are taken at once. */
class TableDigest {
  readonly #running: Hash = createHash('sha256')
  readonly #some = Buffer.alloc(MANY_BYTES)
  #length = 0

  add(text: string | Uint8Array): void {
    const bytes = typeof text === 'string' ? Buffer.from(text) : text
    if (this.#length + bytes.length > MANY_BYTES) this.#flush()
    if (bytes.length > MANY_BYTES) this.#running.update(bytes)
    else {
      this.#some.set(bytes, this.#length)
      this.#length += bytes.length
    }
  }

  hex(): string {
    this.#flush()
    return this.#running.digest('hex')
  }

  #flush(): void {
    this.#running.update(this.#some.subarray(0, this.#length))
    this.#length = 0
  }
}

const MANY_BYTES = 65_536

const lineOf = (row: StoredRow): string => ('line' in row ? String(row.line) : '')

/** The sets in a file of them; null if it is none, or is written in another form. */
function setsIn(bytes: Buffer): readonly PrincipalSet[] | null {
  const list: unknown = parseObject(bytes)?.principals
  if (!Array.isArray(list) || !list.every(isHeldSet)) return null
  return Buffer.from(setsText(new PrincipalSets(list))).equals(bytes) ? list : null
}

const MEMBERS = ['capabilities', 'is_active', 'principal', 'revision', 'row']

// Without any other member: the text is made of all of them.
const isHeldSet = (one: unknown): one is PrincipalSet =>
  isObject(one) &&
  Object.keys(one).toSorted().join() === MEMBERS.join() &&
  [one.principal, one.row].every((text) => typeof text === 'string') &&
  Number.isSafeInteger(one.revision) &&
  typeof one.is_active === 'boolean' &&
  Array.isArray(one.capabilities) &&
  one.capabilities.every((capability) => typeof capability === 'string')
