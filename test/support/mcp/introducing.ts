import type { Json } from '../gateway.ts'
import { type Act, result, sendJson } from './raw-upstream.ts'
import { legacyWith, tool } from './stage.ts'

/** A legacy server that says this of itself, and has one tool, `read`, of this description. */
export function introducing(about: Json, description = 'Reads.'): Act {
  const act = legacyWith([tool('read', { description })])
  return (res, told) => {
    const basis = { protocolVersion: '2025-11-25', capabilities: { tools: {} } }
    const said = { ...basis, serverInfo: { name: 'x', version: '1' }, ...about }
    return told.rpc === 'initialize' ? sendJson(res, result(told, said)) : act(res, told)
  }
}
