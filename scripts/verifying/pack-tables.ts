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

/** Compares the tables of a pack with those that its rows make. */
export interface PackTables {
  readonly see: (row: StoredRow, line: string) => void
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
  const running = new Map<string, Hash>()
  const into = (name: string, text: string): void => {
    const hash = running.get(name) ?? createHash('sha256')
    running.set(name, hash.update(text))
  }
  for (const name of ['rows.csv', 'refusals.csv']) into(name, CSV_HEAD)
  for (const name of ['grants.ndjson', 'sign-ins.ndjson']) into(name, '')
  let tools = 0
  return {
    see: (row, line) => {
      sets.add(row)
      const cells = csvLine(row, csv)
      into('rows.csv', cells)
      if (isRefusal(row)) into('refusals.csv', cells)
      if (isGrant(row)) into('grants.ndjson', `${line}\n`)
      if (isAboutTools(row)) into('tools.json', JSON_LIST.before(tools++) + line)
      if (isSignIn(row)) into('sign-ins.ndjson', `${line}\n`)
    },
    findings: async () => {
      into('sets-end.json', setsText(sets))
      into('tools.json', JSON_LIST.end(tools))
      if (zip.names.includes('state-end.json')) into('state-end.json', stateText(state()))
      const sums = new Map(await digestsIn(zip))
      const wrong = [...running].filter(([name, hash]) => sums.get(name) !== hash.digest('hex'))
      const findings = wrong.map(([name]) => `${name} is not what the rows make`)
      if (before === null || (isWhole && setsText(new PrincipalSets(before)) !== heldText))
        findings.unshift('sets-start.json is not what stood before the rows')
      return findings
    },
  }
}

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
