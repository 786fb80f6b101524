const SOON_MS = 30 * 86_400_000

/** Whether a certificate ends within 30 days, or has ended. `end`: RFC 3339; null where there is none. */
export const expiresSoon = (end: string | null, now: number): boolean =>
  end !== null && Date.parse(end) - now < SOON_MS
