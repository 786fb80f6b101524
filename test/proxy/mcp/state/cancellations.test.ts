import t from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import type { McpMessage } from '../../../../proxy/mcp/protocol/message.ts'
import { RequestCancellations } from '../../../../proxy/mcp/state/cancellations.ts'

const message: McpMessage = {
  kind: 'request',
  era: 'legacy',
  version: '2025-11-25',
  method: 'tools/call',
  id: '7',
  params: {},
  edits: {},
  meta: {},
  takesEvents: true,
}

/** A request under way, what its caller can do, and how often it was told. */
function underWay(more: Partial<McpMessage> = {}) {
  const cancellations = new RequestCancellations()
  const caller = { principalId: 'acme::bot', session: null, message: { ...message, ...more } }
  const callers = new CallHangup()
  const ticket = cancellations.begin({ ...caller, hangup: callers })
  const seen = { told: 0 }
  ticket.hangup.onGone(() => {
    seen.told += 1
  })
  return { callers, ...ticket, seen, cancel: (id: unknown) => cancellations.cancel(caller, id) }
}

t.test('a request is told once that nobody waits, whichever of the two comes first', (t) => {
  const hungUp = underWay()
  hungUp.callers.hangUp(new Error('revoked'))
  hungUp.cancel(7)
  t.equal(hungUp.seen.told, 1)
  t.match(hungUp.hangup.reason, { message: 'revoked' })
  t.ok(hungUp.hangup.signal.aborted)

  const cancelled = underWay()
  const { signal } = cancelled.hangup
  cancelled.cancel(7)
  cancelled.cancel(7)
  cancelled.callers.hangUp()
  t.equal(cancelled.seen.told, 1)
  t.ok(cancelled.hangup.gone && signal.aborted)
  t.end()
})

t.test('another id, a request that is over and one of the modern era are not taken back', (t) => {
  const other = underWay()
  other.cancel('7')
  t.notOk(other.hangup.gone || other.hangup.signal.aborted)
  const over = underWay()
  over.end()
  over.cancel(7)
  t.notOk(over.hangup.gone)
  const modern = underWay({ era: 'modern' })
  modern.cancel(7)
  t.notOk(modern.hangup.gone)
  modern.callers.hangUp()
  t.equal(modern.seen.told, 1, 'hanging up still is told')
  t.end()
})

t.test(
  'of many requests under way those of the id are taken back, and those that are over leave no gap',
  (t) => {
    const cancellations = new RequestCancellations()
    const begin = (principalId: string, id: string) => {
      const request = { principalId, session: null, message: { ...message, id }, hangup: new CallHangup() }
      return { request, ...cancellations.begin(request) }
    }
    const [first, second, twin, others, last] = [
      begin('acme::bot', '1'),
      begin('acme::bot', '2'),
      begin('acme::bot', '2'),
      begin('acme::other', '2'),
      begin('acme::bot', '3'),
    ]
    first?.end()
    first?.end()
    if (second) cancellations.cancel(second.request, 2)
    if (last) cancellations.cancel(last.request, 1)
    t.same(
      [first, second, twin, others, last].map((one) => one?.hangup.gone),
      [false, true, true, false, false],
    )
    if (last) cancellations.cancel(last.request, 3)
    t.ok(last?.hangup.gone, 'it was moved, not lost')
    t.end()
  },
)
