import { createHash } from 'node:crypto'
import { PrincipalSets } from '../../../../db/ledger/authority/principal-sets.ts'
import {
  CSV_HEAD,
  csvLine,
  isAboutTools,
  isGrant,
  isRefusal,
  isSignIn,
  jsonText,
  setsText,
} from '../../../../db/ledger/read/evidence-tables.ts'
import { leafHash } from '../../../../db/ledger/tree/hashes.ts'
import { edgeOf, extendTree, tilePath } from '../../../../db/ledger/tree/tiles.ts'
import { ORIGIN } from '../../sealed-log.ts'
import { type SealedLog, stateBehind } from '../life/log.ts'
import { lineOf, type Written } from '../life/writing.ts'

/** The files of a pack of evidence, by name. */
export type Files = Map<string, Buffer>

/**
 * The pack of so many rows of a log from an index on: an honest one (docs/ledger.md#evidence). With the states at its
 * ends if one of the rows says the state before the first.
 */
export function packOf(log: SealedLog, first: number, count: number): Files {
  const { life, leaves, kept, keys } = log
  const rows = life.written.slice(first, first + count)
  const [before, sets] = [new PrincipalSets(), new PrincipalSets()]
  for (const { row } of life.written.slice(0, first)) {
    before.add(row)
    sets.add(row)
  }
  for (const { row } of rows) sets.add(row)
  const lines = (wanted: (row: (typeof rows)[number]['row']) => boolean): string =>
    rows.flatMap((one) => (wanted(one.row) ? [`${lineOf(one)}\n`] : [])).join('')
  const csv = (wanted: (row: (typeof rows)[number]['row']) => boolean): string =>
    CSV_HEAD + rows.flatMap(({ row }) => (wanted(row) ? [csvLine(row)] : [])).join('')
  const listed = (text: string): string =>
    text === '' ? '[]\n' : `[\n${text.trimEnd().replaceAll('\n', ',\n')}\n]\n`
  const newest = kept.at(-1)
  const files = new Map<string, string | Buffer>([
    ['README.md', 'about it\n'],
    ['rows.ndjson', lines(() => true)],
    ['rows.csv', csv(() => true)],
    ['sets-start.json', setsText(before)],
    ['sets-end.json', setsText(sets)],
    ['grants.ndjson', lines(isGrant)],
    ['refusals.csv', csv(isRefusal)],
    ['tools.json', listed(lines(isAboutTools))],
    ['sign-ins.ndjson', lines(isSignIn)],
    [
      'inventory.json',
      jsonText({
        format: 'sallyport-evidence/1',
        csv: 2,
        since: null,
        until: null,
        origin: ORIGIN,
        tree: 1,
        first_index: first,
        rows: rows.length,
      }),
    ],
    ...(isStated(rows, first) ? [['state-start.json', stateBehind(log, first)] as const] : []),
    ...(first === 0 || isStated(rows, first)
      ? [['state-end.json', stateBehind(log, first + count)] as const]
      : []),
    ['key.txt', keys.map(({ vkey }) => `${vkey}\n`).join('')],
  ])
  const covering = kept.filter(({ size }) => size > first)
  for (const { size, note } of covering.length > 3
    ? [...covering.slice(0, 2), ...(newest ? [newest] : [])]
    : covering)
    files.set(`checkpoints/${size}.txt`, note)
  for (const [name, tile] of tilesOver(leaves)) files.set(name, tile)
  return summed(new Map([...files].map(([name, content]) => [name, Buffer.from(content)])))
}

const isStated = (rows: readonly Written[], first: number): boolean =>
  first > 0 &&
  rows.some(({ row: { action, detail } }) => action === 'ledger.state' && JSON.parse(detail).leaf === first)

/** The widest form of each tile. */
function tilesOver(leaves: readonly string[]): readonly (readonly [string, Buffer])[] {
  const { tiles } = extendTree(
    0,
    edgeOf(0).map(() => Buffer.alloc(0)),
    Buffer.concat(leaves.map(leafHash)),
  )
  return tiles.map(({ level, n, hashes }) => [`tiles/${tilePath({ level, n }, hashes.length / 32)}`, hashes])
}

/** The same files with their digests made anew. */
export function summed(files: Files): Files {
  const listed = [...files].filter(([name]) => name !== 'SHA256SUMS')
  const sums = listed.map(([name, data]) => `${createHash('sha256').update(data).digest('hex')}  ${name}\n`)
  return new Map([...listed, ['SHA256SUMS', Buffer.from(sums.join(''))]])
}
