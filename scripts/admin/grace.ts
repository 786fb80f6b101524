/** The option of commands that replace a certificate, a key or a bundle. */
export const GRACE_OPTION = {
  'grace-hours': {
    type: 'string',
    value: 'HOURS',
    description: 'how long the one before still counts; 0 ends it at once. Default: as configured',
  },
} as const

/** Reads that option as the member of a request. Throws one sentence. */
export function graceIn(grace: string | undefined): { readonly grace_hours?: number } {
  if (grace === undefined) return {}
  const hours = Number(grace)
  if (grace.trim() !== '' && hours >= 0 && hours <= 720) return { grace_hours: hours }
  throw new Error('--grace-hours is a number from 0 to 720')
}
