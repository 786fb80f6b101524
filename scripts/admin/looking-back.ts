import type { CapabilityUsage } from '../../proxy/admin/rehearsals/usage.ts'
import { WrongUsage } from '../command.ts'
import { type AdminCall, expectStatus } from './call.ts'

const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 }

export const LAST_OPTION = {
  last: {
    type: 'string',
    value: 'TIME',
    default: '30d',
    description: 'the window, up to now: 90m, 24h, 30d',
  },
} as const

/** The beginning of a window that `--last` says: RFC 3339. Throws a WrongUsage. */
export function windowStart(last: string): string {
  const [, count = '', unit = ''] = /^([1-9]\d{0,5})([mhd])$/.exec(last) ?? []
  if (count === '') throw new WrongUsage(`--last must be like 90m, 24h or 30d, got ${JSON.stringify(last)}`)
  return new Date(Date.now() - Number(count) * (UNITS[unit] ?? 0)).toISOString()
}

/** The path of an agent, user or workload, whose id says its type. */
export function callerPath(principal: string): string {
  const [, kind = ''] = /^[^:]+::(user|workload)::/.exec(principal) ?? []
  return `/v1/admin/${kind === '' ? 'agents' : `${kind}s`}/${encodeURIComponent(principal)}`
}

/** Asks for the usage of a principal. Throws one sentence. */
export async function fetchUsage(
  call: AdminCall,
  principal: string,
  since: string,
): Promise<CapabilityUsage> {
  const query = new URLSearchParams({ since }).toString()
  return expectStatus<CapabilityUsage>(await call('GET', `${callerPath(principal)}/usage?${query}`), 200)
}

/** The one principal that a verb is about. Throws a WrongUsage. */
export function principalIn([principal, ...rest]: readonly string[]): string {
  if (!principal || rest.length > 0) throw new WrongUsage('name one principal: acme::bot')
  return principal
}
