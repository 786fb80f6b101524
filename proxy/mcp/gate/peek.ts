import { isObject } from '../../../db/json.ts'
import type { Demand } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Plugin } from '../../../plugins/plugin.ts'
import { actionOf, METHODS, UNREAD } from '../protocol/methods.ts'

/**
 * The call that a message seems to be. Given by `mcp_peek`, for the row of a message that is refused while it
 * is read.
 */
export interface Peeked {
  readonly demand: Demand
  /** The tool as the caller calls it, where it can stand in a row. */
  readonly tool: string | null
}

/**
 * Reads the call that a message seems to be, before anything of it is believed: so that the row of a call
 * that is refused while it is read stands under that call, and not among those that nobody could make out.
 * Refuses and decides nothing.
 */
export const mcpPeek: Plugin<Pick<JsonBody, 'json'>, { peeked: Peeked }> = {
  name: 'mcp_peek',
  admit: ({ json: { method: name, params } }) => {
    const method = typeof name === 'string' ? METHODS.get(name) : undefined
    const demand = method ? { action: actionOf(String(name)), capability: method.capability } : UNREAD
    const tool = method?.work === 'call_tool' && isObject(params) ? recordableName(params.name) : null
    return { peeked: { demand, tool } }
  },
}

/** Returns the tool as the caller calls it, where it can stand in a row. */
const recordableName = (name: unknown): string | null =>
  typeof name === 'string' && name.length <= 256 && name.isWellFormed() && !/\p{C}/u.test(name) ? name : null
