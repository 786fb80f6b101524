// Grows a tree in a database of its own to so many leaves, and measures what a tree of that size costs from then on.
// Usage: node tree.ts DIRECTORY LEAVES
import { hash } from 'node:crypto'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { HASH_BYTES, leafHash } from '../../../db/ledger/tree/hashes.ts'
import { consistencyProof, inclusionProof } from '../../../db/ledger/tree/proofs.ts'
import { beginTree, growTree, readEdge, tileReader } from '../../../db/ledger/tree/store.ts'
import { extendTree, type TreeEdge } from '../../../db/ledger/tree/tiles.ts'

/** What a tree of a size costs. Times are µs of this process, its writer's thread included. */
export interface TreeAlone {
  readonly leaves: number
  /** Processor time of all leaves: their hashes, tiles, and storing these. Per leaf. */
  readonly growUs: number
  readonly tiles: number
  readonly bytes: number
  /** Reading the edge, as after a start. */
  readonly edgeUs: number
  /** Appending a second's rows: {@link SECOND} leaves, of which the hashes are there. */
  readonly appendUs: number
  readonly inclusionUs: number
  readonly consistencyUs: number
}

const TREE = 1
/** The leaves of a commit: many, so that filling waits little for the disk. */
const PORTION = 65_536
export const SECOND = 1_000
const TIMES = 200

const [, , directory = '', count = '0'] = process.argv
const file = join(directory, 'tree.db')
const database = await openDatabase(`sqlite:${file}`)
const ledger = await openLedger({ database, version: 'bench' })
const { kysely } = database
const key = { id: 'k', tree: TREE, vkey: 'bench', sealed_key: '', created_at: '2026', retired_at: null }
const begun = { tree: TREE, origin: 'bench', size: 0, place: 0, begun_at: '2026', reason: null }
await ledger.commit({ statements: [...beginTree(kysely, { tree: begun, key })], entries: [] })

const leaves = Number(count)
let [size, edge]: [number, TreeEdge] = [0, []]
const growUs = (await cpuUsOf(() => growTo(leaves, PORTION))) / leaves
const { tiles } = await kysely
  .selectFrom('audit_tiles')
  .select(({ fn }) => fn.countAll<number>().as('tiles'))
  .executeTakeFirstOrThrow()
const read = tileReader(kysely, TREE)
const of = size
const found = {
  ...{ leaves: of, growUs, tiles },
  edgeUs: await medianUs(() => readEdge(read, of)),
  inclusionUs: await medianUs((n) => inclusionProof(read, Math.floor((of * n) / TIMES), of)),
  consistencyUs: await medianUs((n) => consistencyProof(read, 1 + Math.floor((of * n) / TIMES), of)),
  appendUs: await medianUs(() => growTo(size + SECOND, SECOND)),
}
await ledger.close()
await database.close()
// Only now: all of it is in the file.
process.stdout.write(`${JSON.stringify({ ...found, bytes: statSync(file).size } satisfies TreeAlone)}\n`)

async function growTo(wanted: number, portion: number): Promise<void> {
  while (size < wanted) {
    const added = Math.min(portion, wanted - size)
    const from = { tree: TREE, size }
    const grown = extendTree(size, edge, hashesOf(size, added))
    const to = { size: size + added, place: size + added }
    const statements = growTree(kysely, { from, to, ...grown, signatures: ['— bench'], at: 0 })
    await ledger.commit({ statements, entries: [], lazy: true })
    ;[size, edge] = [to.size, grown.edge]
  }
}

/** The hashes of some leaves, which are made up. */
function hashesOf(from: number, many: number): Buffer {
  const hashes = Buffer.alloc(many * HASH_BYTES)
  for (let index = 0; index < many; index += 1)
    leafHash(hash('sha256', String(from + index))).copy(hashes, index * HASH_BYTES)
  return hashes
}

/** The median of many times. */
async function medianUs(work: (n: number) => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < TIMES; n += 1) times.push(await cpuUsOf(() => work(n)))
  return times.toSorted((one, other) => one - other)[TIMES >> 1] ?? 0
}

async function cpuUsOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}
