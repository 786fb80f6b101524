import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject } from '../../../db/support/json.ts'
import { ALLOWED, actorOf, BLOCKED, type OcsfMembers, sourceOf, textOf } from './parts.ts'

/** The profiles of a call's event. */
export const CALL_PROFILES = ['ai_operation', 'security_control']

/** Names of actions that no method of MCP is made of. */
const LOGGED: Readonly<Record<string, string>> = {
  mcp_resources_templates_list: 'resources/templates/list',
  mcp_response: 'response',
  mcp_request: 'request',
}

/**
 * The operation of a call: the method of MCP, or `chat`. Both classes of calls are by this function alone, because
 * upstream has not settled how MCP is to be said (docs/exports.md#ocsf).
 */
export const operationOf = (action: string): string =>
  LOGGED[action] ?? (action.startsWith('mcp_') ? action.slice('mcp_'.length).replace('_', '/') : 'chat')

/** Says what was called, by what protocol. */
export function apiOf(row: AuditRow): OcsfMembers {
  const code = row.detail.http_status ?? row.detail.status
  return {
    operation: operationOf(row.action),
    service: { name: row.action.startsWith('mcp_') ? 'mcp' : 'llm' },
    ...(row.request_id !== null && { request: { uid: row.request_id } }),
    ...(Number.isSafeInteger(code) && { response: { code } }),
  }
}

/** The tool of a call, and the server that has it. */
export function resourcesOf({ tool, provider, action }: AuditRow): readonly OcsfMembers[] {
  const isMcp = action.startsWith('mcp_')
  return [
    ...(tool === null ? [] : [{ name: tool, type: 'tool' }]),
    ...(isMcp && provider !== null ? [{ name: provider, type: 'mcp_resource' }] : []),
  ]
}

function modelOf({ model, provider, detail }: AuditRow): OcsfMembers {
  if (model === null) return {}
  const routed: unknown = Array.isArray(detail.routed) ? detail.routed[0] : detail.routed
  const first = isObject(routed) ? textOf(routed.provider) : textOf(routed)
  return { ai_model: { name: model, ai_provider: provider ?? first ?? 'unknown' } }
}

/** An agent is somebody who is no person. */
export const agentOf = ({ principal_id: uid, principal_type: type }: AuditRow): OcsfMembers =>
  uid !== null && (type === 'agent' || type === 'workload') ? { ai_agent: { uid } } : {}

/** The members of a call's event: of its decision, or of its outcome. */
export function callMembers(row: AuditRow): OcsfMembers {
  const resources = resourcesOf(row)
  const isRefused = row.status === 'denied' || row.status === 'invalid'
  return {
    actor: actorOf(row),
    api: apiOf(row),
    src_endpoint: sourceOf(row),
    ...(resources.length > 0 && { resources }),
    ...modelOf(row),
    ...agentOf(row),
    ...(isRefused ? BLOCKED : ALLOWED),
  }
}
