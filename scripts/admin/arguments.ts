import { type OptionValues, WrongUsage } from '../command.ts'

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

/** Finds the path of a principal by its id, which says its type. */
export function principalPath(id: string): string {
  const kind = /::(user|workload|operator)::/.exec(id)?.[1] ?? 'agent'
  return `/v1/admin/${kind}s/${encodeURIComponent(id)}`
}

/** The option of commands that replace a certificate, a key or a bundle. */
export const GRACE_OPTION = {
  'grace-hours': {
    type: 'string',
    value: 'HOURS',
    description: 'how long the one before still counts; 0 ends it at once. Default: as configured',
  },
} as const

/** Reads that option as the member of a request. Throws one sentence. */
export function graceIn({ 'grace-hours': grace }: OptionValues<typeof GRACE_OPTION>): {
  readonly grace_hours?: number
} {
  if (grace === undefined) return {}
  const hours = Number(grace)
  if (grace.trim() !== '' && hours >= 0 && hours <= 720) return { grace_hours: hours }
  throw new Error('--grace-hours is a number from 0 to 720')
}
