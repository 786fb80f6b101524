import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { capabilityTokens, copyableCode, type HtmlFragment, html } from '../frame/parts.ts'
import { rowReason } from './calls.ts'

/** The authority that a decision names (docs/ledger.md#authority). */
export const rowAuthority = ({ detail }: AuditRow): UnknownRecord =>
  isObject(detail.authority) ? detail.authority : {}

/** The plugins that may refuse a call, in the order in which they are asked (proxy/pipelines.ts). */
const ORDER = [
  ...['origin', 'pin', 'dpop', 'api_key', 'json_body', 'mcp_peek', 'mcp_message', 'mcp_door'],
  ...['mcp_resource_path', 'llm_call', 'llm_members', 'mcp_target', 'capability', 'mcp_tool', 'mcp_state'],
]

/** The gates that each call meets, and their findings. */
const GATE_FINDINGS: Readonly<Record<string, (row: AuditRow) => HtmlFragment | string>> = {
  pin: ({ cert_thumbprint: pin }) =>
    pin === null ? 'no certificate' : html`certificate ${copyableCode(pin)}`,
  dpop: ({ dpop_jkt: key }) => (key === null ? 'no proof' : html`proof by key ${copyableCode(key)}`),
  mcp_target: (row) => {
    const { resource, binding } = rowAuthority(row)
    return isObject(resource) ? `server ${valueText(resource.id)}, by binding ${valueText(binding)}` : ''
  },
  capability: (row) => {
    const { demanded } = rowAuthority(row)
    const list = Array.isArray(demanded) ? demanded.map(valueText) : []
    return list.length === 0 ? 'requires no capability' : html`demands ${capabilityTokens(list)}`
  },
  mcp_tool: (row) => {
    const { pin } = rowAuthority(row)
    return pin === undefined ? '' : html`definition ${copyableCode(valueText(pin))}`
  },
}

const ALWAYS: ReadonlySet<string> = new Set(['pin', 'dpop', 'capability'])

/** The gates of a decision in the order they were asked. After the one that refused none was. */
export function gatesOf(row: AuditRow): readonly HtmlFragment[] {
  const by = typeof row.detail.refused_by === 'string' ? row.detail.refused_by : null
  const { resource, checks } = rowAuthority(row)
  const met = (name: string): boolean =>
    ALWAYS.has(name) || name === by || (isObject(resource) && (name === 'mcp_target' || name === 'mcp_tool'))
  const end = by === null ? -1 : ORDER.indexOf(by)
  const asked = (end < 0 ? ORDER : ORDER.slice(0, end + 1)).filter(met)
  const own = (Array.isArray(checks) ? checks : []).filter(isObject)
  const isCheck = own.some(({ name }) => name === by)
  return [
    ...asked.map((name) => gate(name, name !== by, GATE_FINDINGS[name]?.(row) ?? '', row)),
    ...own.map((check) => gate(valueText(check.name), check.verdict === 'pass', saidBy(check), row)),
    ...(by !== null && end < 0 && !isCheck ? [gate(by, false, '', row)] : []),
  ]
}

const saidBy = ({ verdict, shadow }: UnknownRecord): string =>
  shadow === true ? `${valueText(verdict)}, and only watches` : valueText(verdict)

const gate = (name: string, passed: boolean, says: HtmlFragment | string, row: AuditRow): HtmlFragment =>
  html`<li class="${passed ? 'passed' : 'failed'}"><b>${passed ? '✓' : '✗'} ${name}</b> ${says}${passed ? '' : html` <b>${rowReason(row) ?? ''}</b>`}</li>`

/** A value of a row as a reader wants it. */
export const valueText = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
