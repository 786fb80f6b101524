import { z } from 'zod'
import { endingPins } from '../../../db/principals/pins.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { operation } from '../operation.ts'
import { instant } from '../shapes.ts'

/** The time before its end from which on a certificate is renewed. ms. */
const SOON_MS = 30 * 86_400_000
const MOST = 50

/** Whether a certificate ends within 30 days, or has ended. `end`: RFC 3339; null where there is none. */
export const endsSoon = (end: string | null, now: number): boolean =>
  end !== null && Date.parse(end) - now < SOON_MS

/** Whose certificates end within 30 days, or have ended, the earliest first: at most 50 of those in service. */
export const listEnding = operation({
  name: 'listEndingCertificates',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Lists whose certificates end within 30 days.',
  takes: {},
  output: z.array(
    z.strictObject({
      principal_type: z.enum(['agent', 'user', 'workload', 'operator']),
      principal_id: z.string(),
      name: z.string(),
      cert_not_after: instant,
    }),
  ),
  status: 200,
  reasons: [],
  run: async ({ database }, _input, { at }) => {
    const value = []
    for (const { principal_type, principal_id, not_after } of await endingPins(
      database,
      at + SOON_MS,
      MOST,
    )) {
      const found = await findPrincipal(database, principal_type, principal_id)
      if (!found?.is_active) continue
      value.push({
        principal_type,
        principal_id,
        name: found.display_name || found.name,
        cert_not_after: not_after,
      })
    }
    return { value }
  },
})
