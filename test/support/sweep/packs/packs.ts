import { type Case, type Chooser, type Code, type Edit, keptOf } from '../edits/edit.ts'
import { type Ring, type SealedLog, statedLog } from '../life/log.ts'
import { packOf } from './pack.ts'
import type { Made, PackChange } from './pack-files.ts'
import { CHANGED } from './pack-tables.ts'
import { HONEST_PACKS, NO_PACK, SHORT, TREE } from './pack-trees.ts'
import { BOMBS, entriesOf, ZIPS, type Zipping } from './pack-zips.ts'
import { zipOf } from './zip.ts'

// Edits of packs of evidence: of their files, with the digests made anew, and of the zip that holds them.

function casesOf(made: Made, file: Buffer, code: Code): readonly Case[] {
  return [{ file, ...keptOf(made.log), code }, ...(code === 3 ? [] : [{ file, code } as const])]
}

/** From the first row on, or from a later one, with the state before it or without. */
function madeOf(log: SealedLog, { below }: Chooser, ring: Ring): Made {
  const first = below(2) === 0 ? 0 : below(log.lines.length - 1)
  if (first > 0 && below(2) === 0) {
    const stated = statedLog(log, first, ring)
    return { files: packOf(stated, first, stated.lines.length - first), first, log: stated, ring }
  }
  const count = first === 0 || below(2) === 0 ? log.lines.length - first : 1 + below(log.lines.length - first)
  return { files: packOf(log, first, first === 0 ? log.lines.length : count), first, log, ring }
}

const ofFiles = (changes: Readonly<Record<string, PackChange>>, code: Code): readonly Edit[] =>
  Object.entries(changes).map(([name, change]) => ({
    name: `pack: ${name}`,
    make: (log, choose, ring) => {
      const made = madeOf(log, choose, ring)
      const files = change(made, choose)
      const isSame =
        files !== null &&
        code !== 0 &&
        [...files].every(([name, data]) => made.files.get(name)?.equals(data)) &&
        files.size === made.files.size
      return isSame ? null : files && casesOf(made, zipOf(entriesOf(files)), code)
    },
  }))

const ofZip = (zips: Readonly<Record<string, Zipping>>, code: Code): readonly Edit[] =>
  Object.entries(zips).map(([name, change]) => ({
    name: `zip: ${name}`,
    make: (log, choose, ring) => {
      const made = madeOf(log, choose, ring)
      const zipped = change(entriesOf(made.files), choose)
      return zipped && casesOf(made, zipOf(...zipped), code)
    },
  }))

export const PACK_EDITS: readonly Edit[] = [
  ...ofFiles(HONEST_PACKS, 0),
  ...ofFiles(CHANGED, 2),
  ...ofFiles(TREE, 3),
  ...ofFiles(SHORT, 4),
  ...ofFiles(NO_PACK, 9),
  ...ofZip(ZIPS, 9),
  ...ofZip(BOMBS, 9),
]
