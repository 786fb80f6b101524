import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isMeterCount } from './limit-states.ts'

/** The meter that a row names. */
interface RecordedMeter {
  readonly id: string
  readonly span: string
  readonly n: number
}

/** A member of an allowed decision's `limits` (docs/ledger.md#limits). */
export interface RecordedReservation extends RecordedMeter {
  readonly revision: number
  readonly used: number
  readonly took: number
  readonly each: boolean
}

/** A member of an outcome's `limits`. */
export interface RecordedSettlement extends RecordedMeter {
  readonly charged: number
}

/** The `limit` of a refused decision. */
export interface RecordedRefusalMeter extends RecordedReservation {
  readonly most: number
}

// Each returns null if the row does not say it so. Strict: a member of another name or type is a forged one.

export const reservationsIn = ({ limits = [] }: UnknownRecord): readonly RecordedReservation[] | null =>
  everyOne(limits, reservationIn)

export const settlementsIn = ({ limits = [] }: UnknownRecord): readonly RecordedSettlement[] | null =>
  everyOne(limits, settlementIn)

export function refusalMeterIn({ limit }: UnknownRecord): RecordedRefusalMeter | null {
  if (!isObject(limit)) return null
  const { most, ...members } = limit
  const found = reservationIn(members)
  return found && isMeterCount(most) ? { ...found, most } : null
}

function everyOne<Member extends RecordedMeter>(
  value: unknown,
  read: (one: unknown) => Member | null,
): readonly Member[] | null {
  if (!Array.isArray(value)) return null
  const members = value.map(read)
  if (!members.every((one) => one !== null)) return null
  // Two of one limit would be counted as one.
  return new Set(members.map(({ id }) => id)).size === members.length ? members : null
}

function reservationIn(value: unknown): RecordedReservation | null {
  if (!isObject(value)) return null
  const { id, revision, span, n, used, took, each = false, ...odd } = value
  const isOne = typeof id === 'string' && typeof span === 'string' && typeof each === 'boolean'
  if (!isOne || Object.keys(odd).length > 0) return null
  if (!isMeterCount(revision) || !isMeterCount(n) || !isMeterCount(used) || !isMeterCount(took)) return null
  return { id, revision, span, n, used, took, each }
}

function settlementIn(value: unknown): RecordedSettlement | null {
  if (!isObject(value)) return null
  const { id, span, n, charged, ...odd } = value
  if (typeof id !== 'string' || typeof span !== 'string' || Object.keys(odd).length > 0) return null
  return isMeterCount(n) && isMeterCount(charged) ? { id, span, n, charged } : null
}
