import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject, type Members } from '../../../db/support/json.ts'
import { copyable, type Html, html, tokens } from '../frame/parts.ts'
import { reasonOf } from './calls.ts'

/** What a decision names of the authority that it rested on (docs/ledger.md#authority). */
export const authorityOf = ({ detail }: AuditRow): Members =>
  isObject(detail.authority) ? detail.authority : {}

/** The plugins that may refuse a call, in the order in which they are asked (proxy/pipelines.ts). */
const ORDER = [
  ...['origin', 'pin', 'dpop', 'api_key', 'json_body', 'mcp_peek', 'mcp_message', 'mcp_door'],
  ...['mcp_resource_path', 'llm_call', 'llm_members', 'mcp_target', 'capability', 'mcp_tool', 'mcp_state'],
]

/** The gates that each call meets, and what they saw. */
const SAYS: Readonly<Record<string, (row: AuditRow) => Html | string>> = {
  pin: ({ cert_thumbprint: pin }) => (pin === null ? 'no certificate' : html`certificate ${copyable(pin)}`),
  dpop: ({ dpop_jkt: key }) => (key === null ? 'no proof' : html`proof by key ${copyable(key)}`),
  mcp_target: (row) => {
    const { resource, binding } = authorityOf(row)
    return isObject(resource) ? `server ${text(resource.id)}, by binding ${text(binding)}` : ''
  },
  capability: (row) => {
    const { demanded } = authorityOf(row)
    const list = Array.isArray(demanded) ? demanded.map(text) : []
    return list.length === 0 ? 'demands no capability' : html`demands ${tokens(list)}`
  },
  mcp_tool: (row) => {
    const { pin } = authorityOf(row)
    return pin === undefined ? '' : html`definition ${copyable(text(pin))}`
  },
}

const ALWAYS: ReadonlySet<string> = new Set(['pin', 'dpop', 'capability'])

/** The gates of a decision in the order they were asked. Behind the one that refused nothing was. */
export function gatesOf(row: AuditRow): readonly Html[] {
  const by = typeof row.detail.refused_by === 'string' ? row.detail.refused_by : null
  const { resource, checks } = authorityOf(row)
  const met = (name: string): boolean =>
    ALWAYS.has(name) || name === by || (isObject(resource) && (name === 'mcp_target' || name === 'mcp_tool'))
  const end = by === null ? -1 : ORDER.indexOf(by)
  const asked = (end < 0 ? ORDER : ORDER.slice(0, end + 1)).filter(met)
  const own = (Array.isArray(checks) ? checks : []).filter(isObject)
  const isCheck = own.some(({ name }) => name === by)
  return [
    ...asked.map((name) => gate(name, name !== by, SAYS[name]?.(row) ?? '', row)),
    ...own.map((check) => gate(text(check.name), check.verdict === 'pass', saidBy(check), row)),
    ...(by !== null && end < 0 && !isCheck ? [gate(by, false, '', row)] : []),
  ]
}

const saidBy = ({ verdict, shadow }: Members): string =>
  shadow === true ? `${text(verdict)}, and only watches` : text(verdict)

const gate = (name: string, passed: boolean, says: Html | string, row: AuditRow): Html =>
  html`<li class="${passed ? 'passed' : 'failed'}"><b>${passed ? '✓' : '✗'} ${name}</b> ${says}${passed ? '' : html` <b>${reasonOf(row) ?? ''}</b>`}</li>`

/** A value of a row as a reader wants it. */
export const text = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
