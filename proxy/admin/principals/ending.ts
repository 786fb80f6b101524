import { z } from 'zod'
import { expiringPins } from '../../../db/principals/ending.ts'
import { readOperation } from '../operation/operation.ts'
import { instant } from '../operation/shapes.ts'

/** The time before its end from which on a certificate is renewed. ms. */
const SOON_MS = 30 * 86_400_000
const MAX_ENDING = 50
const PAGE = 200

/** True if a certificate ends within 30 days, or has ended. `end`: RFC 3339; null if there is none. */
export const endsSoon = (end: string | null, now: number): boolean =>
  end !== null && Date.parse(end) - now < SOON_MS

/**
 * Lists at most 50 certificates of principals in service that end within 30 days, or have ended, the earliest
 * first. An SVID that lives for less counts only once it has ended and its agent was not seen since.
 */
export const listEndingCertificates = readOperation({
  name: 'listEndingCertificates',
  summary: 'Lists the principals whose certificates end within 30 days.',
  takes: {},
  output: z.array(
    z.strictObject({
      principal_type: z.enum(['agent', 'user', 'workload', 'operator']),
      principal_id: z.string(),
      name: z.string(),
      svid: z.boolean().meta({ description: 'Whether it is the SVID that its agent was enrolled with.' }),
      cert_not_after: instant,
    }),
  ),
  run: async ({ database }, _input, { at }) => {
    const found: EndingPin[] = []
    // However many SVIDs live for hours only: none of them hides a certificate that somebody must renew.
    for (let read = PAGE, offset = 0; read === PAGE && found.length < MAX_ENDING; offset += PAGE) {
      const page = await expiringPins(database, at + SOON_MS, PAGE, offset)
      found.push(...page.filter((one) => !isRenewedByItself(one, at)))
      read = page.length
    }
    const value = found
      .slice(0, MAX_ENDING)
      .map(({ principal_type, principal_id, name, display_name, enrollment_method: method, not_after }) => ({
        ...{ principal_type, principal_id, svid: method === 'spiffe', cert_not_after: not_after },
        name: display_name || (name ?? principal_id),
      }))
    return { value }
  },
})

type EndingPin = Awaited<ReturnType<typeof expiringPins>>[number]

const isRenewedByItself = (
  {
    enrollment_method: method,
    not_before: start,
    not_after: end,
  }: Pick<EndingPin, 'enrollment_method' | 'not_before' | 'not_after'>,
  at: number,
): boolean => method === 'spiffe' && Date.parse(end) > at && Date.parse(end) - Date.parse(start) < SOON_MS
