import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { Arrival, MemoryReservation } from '../../../plugins/plugin.ts'
import { CallHangup, MemoryBudget } from '../../../proxy/http/open-calls.ts'

/** An arrival as a literal object: nothing known about its sender. */
export function arrival(over: Partial<Arrival> = {}): Arrival {
  return {
    id: 'req_test',
    at: Date.UTC(2026, 0, 1),
    method: 'POST',
    path: '/v1/chat/completions',
    query: '',
    params: {},
    headers: {},
    remoteAddress: '127.0.0.1',
    localUid: null,
    peer: null,
    readBody: () => Promise.resolve(Buffer.alloc(0)),
    held: heldFor(),
    answer: {},
    hangup: new CallHangup(),
    authority: OWN_AUTHORITY,
    ...over,
  }
}

/** An account of a budget that nothing exceeds. */
export function heldFor(): MemoryReservation {
  const all = Number.POSITIVE_INFINITY
  return new MemoryBudget({ process: all, perPrincipal: all, perAnonymous: all }, () => {}).open()
}
