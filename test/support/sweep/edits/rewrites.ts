import { canonical, exportOf, leafOf, resealed } from '../../db/resealed.ts'
import type { Json } from '../../gateway.ts'
import { anchorFile, type Ring, type SealedLog, signed } from '../life/log.ts'
import { CONTRADICTED } from './contradicted.ts'
import { type Case, type Code, type Edit, keptOf } from './edit.ts'
import { BEYOND, NO_CHAIN } from './no-chain.ts'
import { SILENT } from './silent.ts'
import { UNPAIRED } from './unpaired.ts'

// Edits by whoever owns the database: every hash behind the edit is made anew, so the chains hold. What finds them is the
// authority of the rows themselves, a stream's beginning, or a checkpoint that was kept elsewhere.

const leavesOf = (rows: readonly Json[]): readonly string[] => rows.map((row) => canonical(leafOf(row)))

/** What a kept checkpoint says of rows that begin as the log does and differ from an index on. */
function codeOfKept(
  { kept, leaves }: Pick<SealedLog, 'kept' | 'leaves'>,
  forged: readonly string[],
): 0 | 3 | 4 {
  const at = leaves.findIndex((leaf, index) => leaf !== forged[index])
  const same = at < 0 ? leaves.length : at
  if (kept.some(({ size }) => size > same && size <= forged.length)) return 3
  return kept.some(({ size }) => size > forged.length) ? 4 : 0
}

function casesOf(log: SealedLog, ring: Ring, forged: readonly Json[], alone: Code): readonly Case[] {
  const rows = resealed(forged)
  const leaves = leavesOf(rows)
  const held = codeOfKept(log, leaves)
  const file = exportOf(rows)
  const code = alone === 2 || held === 0 ? alone : held
  const [key] = log.keys
  // With the log's own key everything can be signed anew: nothing but what was kept finds it.
  const anew = signed(leaves, key ? [key] : [], null)
  const byThief = signed(leaves, [ring.thief], ring.witness)
  const last = log.kept.slice(-1)
  return [
    { file, code: alone },
    { file, ...keptOf(log), code },
    { file, kept: anchorFile(log.kept), code },
    { file, keys: key ? [key.vkey] : [], kept: anew, code: alone },
    { file, keys: key ? [key.vkey] : [], kept: byThief, code: alone === 2 ? 2 : 3 },
    {
      file,
      ...keptOf(log),
      kept: `${anew}\n${anchorFile(last)}`,
      code: alone === 2 ? 2 : codeOr(codeOfKept({ ...log, kept: last }, leaves), alone),
    },
  ]
}

const codeOr = (held: 0 | 3 | 4, alone: Code): Code => (held === 0 ? alone : held)

export const REWRITES: readonly Edit[] = Object.entries({
  ...SILENT,
  ...CONTRADICTED,
  ...UNPAIRED,
  ...NO_CHAIN,
  ...BEYOND,
}).map(([name, rewrite]) => ({
  name: `written anew: ${name}`,
  make: (log, choose, ring) => {
    const made = rewrite(log.rows, choose, log)
    return made && casesOf(log, ring, made.rows, made.alone)
  },
}))
