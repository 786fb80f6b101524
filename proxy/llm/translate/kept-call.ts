import { isObject } from '../../../db/support/json.ts'
import type { CallerTool, ToolNames } from './names.ts'
import { CUSTOM_INPUT } from './request/tools.ts'

/** Characters of the arguments of one answer. One with more is broken. */
const MAX_ARGUMENTS = 1024 * 1024

/** A call of an answer, as its caller names it. */
export class AnsweredCall {
  readonly id: string
  readonly tool: CallerTool
  #input = ''

  constructor(id: string, target: string, names: ToolNames) {
    this.id = id
    this.tool = names.toolOf(target)
  }

  /** Returns what may go on of this piece: nothing of the text of a custom tool, which stands in JSON. */
  add(piece: string): string {
    this.#input += piece
    if (this.#input.length > MAX_ARGUMENTS) throw new RangeError('a call has more than 1 MiB of arguments')
    return this.tool.isCustom ? '' : piece
  }

  /** Returns the whole arguments as their caller wants them; null: they are not finished. */
  input(): string | null {
    const text = this.#input === '' ? '{}' : this.#input
    let given: unknown
    try {
      given = JSON.parse(text)
    } catch {
      return null
    }
    if (!isObject(given)) return null
    if (!this.tool.isCustom) return text
    const { [CUSTOM_INPUT]: input } = given
    return typeof input === 'string' ? input : null
  }
}
