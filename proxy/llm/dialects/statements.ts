import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { Dialect } from './dialect.ts'
import { StatedOutcome } from './faults.ts'
import { MemberPicker, type PickedMembers } from './member-picker.ts'
import { StatedUsage } from './usage.ts'

/**
 * Bytes. A longer document is neither kept nor parsed whole, which would hold up everybody for as long as 0.1
 * s (docs/threats.md#a3): the members that count are picked out of it as it passes, for a caller can make it
 * as long as it likes.
 */
export const PARSED_WHOLE = 65_536

/** The names by which answers of a dialect are read. */
export type AnswerNames = Pick<Dialect, 'usage' | 'outcome'>

/** The statements of the documents of an answer: the only one, or those of its events. */
export class AnswerStatements {
  readonly usage: StatedUsage
  readonly outcome: StatedOutcome
  readonly #names: AnswerNames

  constructor(names: AnswerNames) {
    this.usage = new StatedUsage(names.usage)
    this.outcome = new StatedOutcome(names.outcome)
    this.#names = names
  }

  /** Takes an event. `name`: empty if it has none. */
  addEvent(name: string, data: string): void {
    const isEnd = data.startsWith('[DONE]')
    const root = isEnd ? undefined : parseOrNothing(data)
    if (isEnd) this.outcome.end()
    else if (isObject(root)) this.addDocument(root, name)
    // In whichever words.
    else if (name === 'error') this.addDocument({}, name)
  }

  addDocument(root: UnknownRecord, name = ''): void {
    this.usage.add(root)
    this.outcome.add(root, name)
  }

  picker(): MemberPicker {
    return new MemberPicker(pickedOf(this.#names))
  }

  /** Takes what was picked from a document. One that was cut off has not said how the work went. */
  addPicked(picker: MemberPicker): void {
    const root = picker.object()
    if (!isObject(root)) return
    this.usage.add(root)
    if (picker.isWhole) this.outcome.add(root, '')
  }
}

const HOLDER: PickedMembers = { usage: null, model: null, service_tier: null, error: null, status: null }

const ANYWHERE: PickedMembers = {
  ...HOLDER,
  type: null,
  object: null,
  code: null,
  success: null,
  base_resp: null,
  error_code: null,
}

function pickedOf({ usage, outcome }: AnswerNames): PickedMembers {
  const finishes = outcome.finishes.map((path) => path.split('.'))
  const inner = finishes.map(([outer = '', name = '']) => [outer, { ...HOLDER, [name]: null }] as const)
  const holders = usage.holders.map((name) => [name, HOLDER] as const)
  return { ...Object.fromEntries([...holders, ...inner]), ...ANYWHERE }
}

/** Returns undefined for a text that is no JSON. */
export function parseOrNothing(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not our document to judge: the caller gets it as it is, and its usage stays unknown.
    return undefined
  }
}
