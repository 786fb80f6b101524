import { isObject } from '../../../db/json.ts'
import type { Demand } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Plugin } from '../../../plugins/plugin.ts'
import { actionOf, METHODS, UNREAD } from '../protocol/methods.ts'

/** What a message seems to ask for. Given by `mcp_peek`; only a row of what is refused while it is read holds it. */
export interface Peeked {
  readonly demand: Demand
  /** The tool as the caller calls it, where it can stand in a row. */
  readonly tool: string | null
}

/**
 * What a message seems to ask for, before anything of it is believed: so that the row of a call that is refused while it is
 * read stands under that call, and not among what nobody could make out. Refuses nothing and decides nothing.
 */
export const mcpPeek: Plugin<Pick<JsonBody, 'json'>, { peeked: Peeked }> = {
  name: 'mcp_peek',
  admit: ({ json: { method: name, params } }) => {
    const method = typeof name === 'string' ? METHODS.get(name) : undefined
    const demand = method ? { action: actionOf(String(name)), capability: method.capability } : UNREAD
    const tool = method?.work === 'call_tool' && isObject(params) ? shownName(params.name) : null
    return { peeked: { demand, tool } }
  },
}

/** The tool as the caller calls it, where it can stand in a row. */
const shownName = (name: unknown): string | null =>
  typeof name === 'string' && name.length <= 256 && name.isWellFormed() && !/\p{C}/u.test(name) ? name : null
