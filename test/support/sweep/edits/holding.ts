import type { Json } from '../../gateway.ts'
import { receiptOver } from '../../sealed-log.ts'
import type { Ring, SealedLog } from '../life/log.ts'
import type { Case, Chooser } from './edit.ts'

/** An honest receipt of a call, and what belongs to it. */
export interface Held {
  readonly receipt: Json
  readonly text: string
  readonly body: string
  readonly salt: string
  readonly note: string
  readonly key: string
}

export type ReceiptChange = (
  held: Held,
  choose: Chooser,
  log: SealedLog,
  ring: Ring,
) => Partial<Case> | null | Promise<Partial<Case> | null>

export async function receiptOf(log: SealedLog, { one }: Chooser): Promise<Held | null> {
  const request = one([...log.life.bodies.keys()])
  const about = log.rows.flatMap(({ request_id: id }, index) => (id === request ? [index] : []))
  const opened = log.life.bodies.get(request ?? '')
  const [key] = log.keys
  const note = log.kept.at(-1)?.note ?? ''
  if (!opened || !key || about.length === 0) return null
  const receipt = await receiptOver(log.leaves, about, note, { body_sha256: opened.salt })
  return { receipt, text: JSON.stringify(receipt), ...opened, note, key: key.vkey }
}

export const withRow = ({ receipt }: Held, change: (row: Json) => object): string =>
  JSON.stringify({
    ...receipt,
    rows: receipt.rows.map((row: Json, index: number) => (index === 0 ? { ...row, ...change(row) } : row)),
  })
export const withProof = (held: Held, from: string | RegExp, to: string): string =>
  withRow(held, ({ proof }) => ({ proof: proof.replace(from, () => to) }))
export const withSalt = ({ receipt }: Held, salt: unknown): string =>
  JSON.stringify({ ...receipt, salts: { body_sha256: salt } })
export const spelt = ({ text }: Held, from: string | RegExp, to: string): string | null => {
  const made = text.replace(from, () => to)
  return made === text ? null : made
}
