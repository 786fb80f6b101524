import type { Chooser } from '../edits/edit.ts'
import type { Ring, SealedLog } from '../life/log.ts'
import { type Files, summed } from './pack.ts'

/** An honest pack, and what it was made of. */
export interface Made {
  readonly files: Files
  readonly first: number
  readonly log: SealedLog
  readonly ring: Ring
}

export type PackChange = (made: Made, choose: Chooser) => Files | null

export const text = (files: Files, name: string): string => String(files.get(name) ?? '')
export const put = ({ files }: Made, name: string, content: string | Buffer | null): Files => {
  const made = new Map(files)
  if (content === null) made.delete(name)
  else made.set(name, Buffer.from(content))
  return summed(made)
}
export const named = ({ files }: Made, pattern: RegExp): readonly string[] =>
  [...files.keys()].filter((name) => pattern.test(name))
export const lines = ({ files }: Made, name: string): readonly string[] => text(files, name).split(/(?<=\n)/)
export const flipped = (data: Buffer | undefined, { below }: Chooser): Buffer => {
  const bytes = Buffer.from(data ?? '')
  const at = below(bytes.length)
  bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << below(8)), at)
  return bytes
}
export const inventory = (made: Made, change: object): Files =>
  put(
    made,
    'inventory.json',
    JSON.stringify({ ...JSON.parse(text(made.files, 'inventory.json')), ...change }),
  )
export const MADE_OF_ROWS = [
  'rows.csv',
  'refusals.csv',
  'grants.ndjson',
  'tools.json',
  'sign-ins.ndjson',
  'sets-end.json',
]
