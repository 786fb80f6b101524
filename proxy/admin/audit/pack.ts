import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Database } from '../../../db/database.ts'
import { stateText } from '../../../db/ledger/authority/ledger-state.ts'
import { PrincipalSets } from '../../../db/ledger/authority/principal-sets.ts'
import {
  CSV_HEAD,
  csvLine,
  isAboutTools,
  isGrant,
  isRefusal,
  isSignIn,
  JSON_LIST,
  jsonText,
  setsText,
} from '../../../db/ledger/read/evidence-tables.ts'
import { userNameFinder } from '../../../db/ledger/read/names.ts'
import { archivedMember, archivedTiles } from '../../../db/ledger/read/segment-pool.ts'
import { exportLine, type StoredRow } from '../../../db/ledger/record/leaf.ts'
import { anchorStates } from '../../../db/ledger/tree/anchored.ts'
import { statesUpTo, textOfState } from '../../../db/ledger/tree/states.ts'
import { noteOfCheckpoint, tileReader, treeKeysOf } from '../../../db/ledger/tree/store.ts'
import { tilePath } from '../../../db/ledger/tree/tiles.ts'
import { readState, recomputer } from '../../../db/ledger/verify/recompute.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext } from '../operation/context.ts'
import { checkpointsOf, type EvidenceScope, packedPages, pagesIn, tilesOf } from './scope.ts'
import { ZippedFile, ZipWriter } from './zip.ts'

/** The page that tells an auditor what is in a pack, what it shows, and what it does not. */
const readmeOf = ({
  tree,
  newest,
  first,
  count,
  state,
  segments,
  since,
  until,
}: EvidenceScope): string => `# Evidence of ${tree.origin}

${count} rows of the audit ledger of a Sallyport gateway${since === null ? '' : ` since ${since}`}${until === null ? '' : ` until ${until}`}: leaves ${first} to ${first + count - 1}
of the log ${tree.origin}, under a signed checkpoint of ${newest.size} rows.

## How to verify it

    python3 verify.py PACK.zip --key 'VERIFIER KEY'
    node verify.mjs PACK.zip --key 'VERIFIER KEY'

With \`--tsa CA.pem\`, the time stamps in the pack are verified with the CA certificates of an authority that you trust.
Get the verifier key, a checkpoint, the key of a witness or such a CA from elsewhere, and not from this pack: with those
in the pack, the best possible verdict is CONSISTENT, NOT WITNESSED. \`verify.py\` needs only Python 3.9;
\`verify.mjs\` needs only Node 22. A verifier that comes with what it verifies may be forged with
it: get the verifiers from elsewhere too, compare their digests with those that the project publishes, or write your own
from the project's page on the ledger.

## What each file shows

| File | What it holds | SOC 2 | Other |
|---|---|---|---|
| rows.ndjson, rows.csv | every recorded call and change, in the order of the log | CC7.2, CC7.3 | EU AI Act Art. 12 (records over the lifetime), Art. 19 (logs that are kept), Art. 26(6) |
| sets-start.json, sets-end.json | what each principal was allowed to do at both ends of the period | CC6.1, CC6.3 | ISO/IEC 42001 A.3.2 (roles and responsibilities) |
| state-start.json, state-end.json | all that the decisions of the period rest on, before its first row and after its last | CC6.1, CC7.2 | EU AI Act Art. 12 |
| grants.ndjson | each change of what somebody may do: who made it, when, what it was before, and the rehearsal that it was based on | CC6.2, CC6.3, CC8.1 | EU AI Act Art. 26(1) |
| refusals.csv | each call that was refused, and why | CC6.1, CC7.2 | EU AI Act Art. 26(5) |
| tools.json | tools of MCP servers that were pinned, quarantined and approved | CC8.1 | ISO/IEC 42001 A.10.3 (suppliers) |
| sign-ins.ndjson | operators who signed in, and who was refused | CC6.1, CC7.2 | |
| inventory.json | the keys and CAs that were in force, the anchors, and the bounds of this pack | CC6.1 | |
| checkpoints, tiles, anchors, key.txt | what binds the rows to signed checkpoints, and what others have said about those | CC7.2 | EU AI Act Art. 12 |
| SHA256SUMS | the digest of every other file | | |

## What it does not show

- What was said: it contains prompts, answers, arguments and results only as salted digests.
- That no call went around the gateway. It shows only the calls that came through the gateway.
- That the gateway's clock was right. A witness or a time stamp shows only that a checkpoint existed by a certain time.
- Anything about rows that were not sealed when it was made, or that were recorded before the log began.${
  first === 0 || state !== null || segments.length > 0
    ? ''
    : `
- That a decision followed from authority that was given before the first row of this pack: the rows of earlier changes
  are not in it.`
}
- That a control is sufficient. It shows that the control was applied.
`

/** The folder of the installation; what is compiled lies one folder deeper. */
const ROOT = join(import.meta.dirname, import.meta.filename.endsWith('.js') ? '../../../..' : '../../..')

/** The verifier that packs bring, as a program of Node. */
export const VERIFIER = join(ROOT, 'dist/verify.mjs')

const VERIFIERS = { 'verify.py': 'docs/verify.py', 'verify.mjs': 'dist/verify.mjs' }

/** Reads the verifiers of this installation. Refuses if it lacks one. */
const readVerifiers = (): readonly (readonly [name: string, text: Buffer])[] =>
  Object.entries(VERIFIERS).map(([name, path]) => {
    try {
      return [name, readFileSync(join(ROOT, path))]
    } catch (cause) {
      const message = `A pack needs its verifiers, but this installation cannot read ${path}. Install it again, or in a checkout run make verifier.`
      throw new Refusal('internal', { message, cause })
    }
  })

interface PackContext {
  readonly database: Pick<Database, 'kysely' | 'treeRows'>
  readonly authority: PackedAuthority
  readonly verifiers: ReturnType<typeof readVerifiers>
}

type OwnCa = Pick<AdminContext['authority'], 'rootPem' | 'intermediatePem'>

/** Our own CA, as far as a pack says it. */
export interface PackedAuthority extends OwnCa {
  readonly rotation: { readonly other: OwnCa } | null
}

/** The bytes of tables that a pack holds while it is made, beside its rows. */
const ROOM = 8 * 1_048_576

interface PackOptions {
  readonly room?: number
  /** Given each row once, in order. */
  readonly onRow?: (row: StoredRow) => void
}

/**
 * Makes a zip (docs/ledger.md#evidence) as it is read, in constant memory: it reads the rows once more for tables
 * that are larger than `room`. Refuses before its first byte if this installation lacks a verifier. Throws an
 * AbortError when the signal fires.
 */
export const packOf = (
  context: Omit<PackContext, 'verifiers'>,
  scope: EvidenceScope,
  at: number,
  signal: AbortSignal,
  options: PackOptions = {},
): AsyncGenerator<Uint8Array> =>
  pieces({ ...context, verifiers: readVerifiers() }, scope, at, signal, options)

async function* pieces(
  { database, authority, verifiers }: PackContext,
  scope: EvidenceScope,
  at: number,
  signal: AbortSignal,
  { room = ROOM, onRow }: PackOptions,
): AsyncGenerator<Uint8Array> {
  const { kysely } = database
  const { tree, newest, archived, first, count } = scope
  const zip = new ZipWriter(at)
  yield zip.file('README.md', readmeOf(scope))
  const startText = await startOf(database, scope)
  const start = startText === null ? null : readState(startText)
  // Without the rows before it, what a pack is judged by is not known, but for the sets.
  const walk = first === 0 || start ? recomputer({ before: start ?? undefined, judges: false }) : null
  const behind = start ?? (walk ? null : await archivedState(database, scope))
  const sets = new PrincipalSets(behind?.state.principal_sets)
  if (!walk)
    for await (const page of pagesIn(
      database,
      { after: archived.place, count: first - archived.size },
      signal,
    ))
      for (const row of page) sets.add(row)
  yield zip.file('sets-start.json', setsText(sets))
  const streams = new Map<string, { first_seq: number; last_seq: number }>()
  yield* zippedRows(database, scope, signal, { zip, room }, (row) => {
    const { stream, seq } = row
    ;(walk ?? sets).add(row)
    onRow?.(row)
    streams.set(stream, { first_seq: streams.get(stream)?.first_seq ?? seq, last_seq: seq })
  })
  const end = walk?.state()
  yield zip.file('sets-end.json', setsText(end ? new PrincipalSets(end.principal_sets) : sets))
  if (startText !== null) yield zip.file('state-start.json', startText)
  if (end) yield zip.file('state-end.json', stateText(end))
  const keys = await treeKeysOf(kysely, tree.tree)
  const anchors = await anchorStates(kysely, tree.tree)
  const checkpoints = await checkpointsOf(database, scope)
  const attached = await kysely
    .selectFrom('attached_cas')
    .select(['digest', 'kind', 'subject', 'not_after', 'attached_at'])
    .execute()
  const signing = await kysely
    .selectFrom('signing_keys')
    .select(['kid', 'created_at', 'retired_at'])
    .execute()
  yield zip.file(
    'inventory.json',
    jsonText({
      format: 'sallyport-evidence/1',
      csv: 2,
      generated_at: new Date(at).toISOString(),
      ...{ since: scope.since, until: scope.until, origin: tree.origin, tree: tree.tree },
      ...{ first_index: first, rows: count },
      checkpoint: { size: newest.size, root: newest.root },
      keys: keys.map(({ vkey, created_at, retired_at }) => ({ vkey, created_at, retired_at })),
      cas: [
        ...[authority, authority.rotation?.other].flatMap((own) =>
          own ? [{ kind: 'own', root_pem: own.rootPem, intermediate_pem: own.intermediatePem }] : [],
        ),
        ...attached,
      ],
      signing_keys: signing,
      anchors,
      streams: [...streams].map(([stream, bounds]) => ({ stream, ...bounds })),
    }),
  )
  yield zip.file('key.txt', keys.map(({ vkey }) => `${vkey}\n`).join(''))
  for (const checkpoint of checkpoints)
    yield zip.file(`checkpoints/${checkpoint.size}.txt`, await noteOfCheckpoint(kysely, tree, checkpoint))
  const read = archivedTiles(scope.segments, scope.folder, tileReader(kysely, tree.tree))
  for (const { level, n, width } of tilesOf(scope, checkpoints)) {
    yield zip.file(`tiles/${tilePath({ level, n }, width)}`, await read({ level, n }, width))
    await nextTurn(undefined, { signal })
  }
  yield zip.file('anchors/anchors.json', jsonText({ anchors }))
  const sizes = checkpoints.map(({ size }) => size)
  const stamps = await kysely
    .selectFrom('audit_cosignatures')
    .select(['size', 'proof'])
    .where('tree', '=', tree.tree)
    .where('size', 'in', sizes)
    .where('anchor', 'like', 'timestamp:%')
    .orderBy('anchor')
    .execute()
  for (const [name, proof] of namedStamps(stamps)) yield zip.file(name, Buffer.from(proof, 'base64'))
  for (const [name, text] of verifiers) yield zip.file(name, text)
  yield zip.file('SHA256SUMS', zip.sums)
  yield zip.close()
}

/**
 * Makes the files that hold the rows of a pack: one as it is read, the others beside it as far as there is room,
 * and those that are left by another reading. `see`: given each row once.
 */
async function* zippedRows(
  { kysely, treeRows }: PackContext['database'],
  scope: EvidenceScope,
  signal: AbortSignal,
  { zip, room }: { readonly zip: ZipWriter; readonly room: number },
  see: (row: StoredRow) => void,
): AsyncGenerator<Uint8Array> {
  // One for all files: a line of one is that of the other.
  const names = scope.named ? userNameFinder(kysely) : async () => ({})
  let left: readonly string[] = OF_ROWS
  for (let onRow = see; left.length > 0; onRow = () => {}) {
    const files = new Map(left.map((name) => [name, new ZippedFile(name)]))
    const [read] = files.values()
    const into = (name: string, text: string): void => files.get(name)?.add(text)
    for (const name of left) if (name.endsWith('.csv')) into(name, CSV_HEAD)
    let tools = 0
    if (read) yield zip.begin(read)
    for await (const page of packedPages({ treeRows }, scope, signal)) {
      dropLargest(files, room)
      for (const row of page) {
        onRow(row)
        const [line, cells] = [exportLine(row, await names(row)), csvLine(row)]
        into('rows.ndjson', `${line}\n`)
        into('rows.csv', cells)
        if (isGrant(row)) into('grants.ndjson', `${line}\n`)
        if (isRefusal(row)) into('refusals.csv', cells)
        if (isAboutTools(row)) into('tools.json', JSON_LIST.before(tools++) + line)
        if (isSignIn(row)) into('sign-ins.ndjson', `${line}\n`)
        const blocks = read?.taken() ?? []
        if (blocks.length === 0) continue
        yield* blocks
        await nextTurn(undefined, { signal })
      }
    }
    into('tools.json', JSON_LIST.end(tools))
    for (const file of files.values()) {
      if (file !== read) yield zip.begin(file)
      yield* file.taken()
      yield zip.end(file)
    }
    left = left.filter((name) => !files.has(name))
  }
}

const OF_ROWS = [
  ...['rows.ndjson', 'rows.csv', 'grants.ndjson', 'refusals.csv', 'tools.json', 'sign-ins.ndjson'],
]

/** Lets go of the largest files but for the first, until there is room for the others. */
function dropLargest(files: Map<string, ZippedFile>, room: number): void {
  const held = [...files.values()].slice(1).toSorted((one, other) => one.packed - other.packed)
  for (let sum = held.reduce((all, { packed }) => all + packed, 0); sum > room; ) {
    const { name, packed } = held.pop() as ZippedFile
    sum -= packed
    files.delete(name)
  }
}

/** Reads the state before the first row; null if the pack brings none. */
async function startOf(
  database: PackContext['database'],
  { first, state, segments, folder }: EvidenceScope,
): Promise<string | null> {
  const [segment] = segments
  if (segment && first > 0) return (await archivedMember(folder, segment, 'state-start.json')).toString()
  return state && textOfState(database, state)
}

/** Reads what the rows have left that are archived; null if none is. */
async function archivedState(
  database: PackContext['database'],
  { tree, archived }: EvidenceScope,
): Promise<ReturnType<typeof readState>> {
  const [state] = archived.size === 0 ? [] : await statesUpTo(database, tree.tree, archived.size, 1)
  return state ? readState(await textOfState(database, state)) : null
}

/** The files of time stamps: those of further authorities over the same checkpoint are numbered from 2. */
function* namedStamps(
  stamps: readonly { readonly size: number; readonly proof: string }[],
): Generator<readonly [name: string, proof: string]> {
  const counts = new Map<number, number>()
  for (const { size, proof } of stamps) {
    const count = (counts.get(size) ?? 0) + 1
    counts.set(size, count)
    yield [`anchors/${size}${count > 1 ? `-${count}` : ''}.tsr`, proof]
  }
}
