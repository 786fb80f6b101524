import { setTimeout as pause } from 'node:timers/promises'
import { askGateway, type GatewayAnswer } from './gateway-request.ts'
import { readIdentity } from './identity/identity.ts'
import { gatewayRefusal, jsonMembers } from './refusal.ts'
import { clientSession } from './signing/session.ts'

/**
 * A row is sealed a second after it was recorded, and an outcome is recorded when its answer has ended. ms.
 */
const PATIENCE_MS = 15_000
const PAUSE_MS = 500

/**
 * A receipt, and the key that the gateway says its log has: no proof to a reader who has it from nowhere
 * else.
 */
export interface FetchedReceipt {
  /** The file: JSON (docs/ledger.md#receipts). */
  readonly receipt: string
  readonly verifierKey: string
  /** True if the outcome of the call is in it. */
  readonly ended: boolean
}

/**
 * Fetches the receipt of a call of this identity, and waits for the call to end and to be sealed, some
 * seconds at most. `url`: in place of the one in `gateway.json`. Throws a `GatewayRefusal` if the gateway
 * knows no such call of this principal.
 */
export async function fetchReceipt(
  directory: string,
  requestId: string,
  url?: string,
): Promise<FetchedReceipt> {
  const identity = readIdentity(directory, url)
  // A clock makes it a session of its own, which is closed with this call.
  const session = clientSession(identity, { now: Date.now })
  const get = (path: string): Promise<GatewayAnswer> => askGateway(session.dispatcher, identity.url + path)
  try {
    const path = `/v1/audit/proofs/${encodeURIComponent(requestId)}`
    const end = Date.now() + PATIENCE_MS
    let answer = await get(path)
    while (Date.now() < end && !isWhole(answer) && mayBecomeWhole(answer)) {
      await pause(PAUSE_MS)
      answer = await get(path)
    }
    if (answer.status !== 200) throw gatewayRefusal(answer.status, answer.text)
    const key = await get('/v1/audit/key')
    if (key.status !== 200) throw gatewayRefusal(key.status, key.text)
    return { receipt: answer.text, verifierKey: key.text.trim(), ended: isWhole(answer) }
  } finally {
    await session.close()
  }
}

const mayBecomeWhole = ({ status, text }: GatewayAnswer): boolean =>
  status === 200 || (status === 404 && jsonMembers(text).reason === 'not_sealed_yet')

/** True unless the last row is an allowed decision, whose outcome is still to come. */
function isWhole({ status, text }: GatewayAnswer): boolean {
  if (status !== 200) return false
  const rows: unknown = jsonMembers(text).rows
  const last: unknown = Array.isArray(rows) ? rows.at(-1)?.leaf : undefined
  return typeof last === 'string' && jsonMembers(last).status !== 'allowed'
}
