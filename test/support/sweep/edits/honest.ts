import { receiptOver } from '../../sealed-log.ts'
import { anchorFile, type Ring, type SealedLog } from '../life/log.ts'
import { packOf } from '../packs/pack.ts'
import { zipOf } from '../packs/zip.ts'
import { type Case, type Chooser, keptOf } from './edit.ts'

/** What of an honest history somebody may verify: its export, and one of its beginning, a pack, or a receipt. */
export async function honestCases(
  log: SealedLog,
  { below, one }: Chooser,
  { witness }: Ring,
): Promise<readonly Case[]> {
  const whole: Case = {
    file: log.lines.map((line) => `${line}\n`).join(''),
    ...keptOf(log),
    witnesses: [witness.vkey],
    code: 0,
  }
  return [whole, ...[(await another(log, { below, one })) ?? []].flat()]
}

async function another(log: SealedLog, { below, one }: Chooser): Promise<Case | null> {
  switch (below(4)) {
    case 0: {
      // The rows as they were at a checkpoint, and what was kept up to it.
      const at = one(log.kept)
      const kept = log.kept.filter(({ size }) => size <= (at?.size ?? 0))
      return at ? { file: log.lines.slice(0, at.size).join('\n'), kept: anchorFile(kept), code: 0 } : null
    }
    case 1: {
      const first = below(log.lines.length)
      return { file: zipped(log, first, 1 + below(log.lines.length - first)), ...keptOf(log), code: 0 }
    }
    case 2:
      return { file: zipped(log, 0, log.lines.length), keys: keptOf(log).keys ?? [], code: 0 }
    default: {
      const request = one([...log.life.bodies.keys()])
      const opened = log.life.bodies.get(request ?? '')
      if (!opened) return null
      const about = log.rows.flatMap(({ request_id: id }, index) => (id === request ? [index] : []))
      const receipt = await receiptOver(log.leaves, about, log.kept.at(-1)?.note ?? '', {
        body_sha256: opened.salt,
      })
      return { file: JSON.stringify(receipt), keys: keptOf(log).keys ?? [], body: opened.body, code: 0 }
    }
  }
}

const zipped = (log: SealedLog, first: number, count: number): Buffer =>
  zipOf([...packOf(log, first, count)].map(([name, data]) => ({ name, data })))
