import t from 'tap'
import { CallerSessions } from '../../../../proxy/mcp/state/sessions.ts'

const HOUR_MS = 3_600_000
const of = (principalId: string) => ({ principalId, resourceId: null, capabilities: {}, clientInfo: null })

await t.test('threat 6: a session is found by the principal that opened it, and by nobody else', (t) => {
  const sessions = new CallerSessions(() => {})
  const session = sessions.open(of('acme::a'), 0)
  t.equal(sessions.find('acme::a', session.id, 1), session)
  t.equal(sessions.find('acme::b', session.id, 1), undefined)
  t.equal(sessions.end('acme::b', session.id), false)
  t.equal(sessions.find('acme::a', session.id, 2), session, 'the attempt ended nothing')
  t.end()
})

await t.test('a session ends once, when its client says so', (t) => {
  const ended: string[] = []
  const sessions = new CallerSessions(({ id }) => ended.push(id))
  const { id } = sessions.open(of('acme::a'), 0)
  t.equal(sessions.end('acme::a', id), true)
  t.equal(sessions.end('acme::a', id), false)
  t.equal(sessions.find('acme::a', id, 1), undefined)
  t.same(ended, [id])
  t.end()
})

await t.test('a session that nobody uses for an hour is gone; use keeps it', (t) => {
  const sessions = new CallerSessions(() => {})
  const kept = sessions.open(of('acme::a'), 0)
  const left = sessions.open(of('acme::a'), 0)
  t.ok(sessions.find('acme::a', kept.id, HOUR_MS - 1))
  t.ok(sessions.find('acme::a', kept.id, 2 * HOUR_MS - 2))
  t.equal(sessions.find('acme::a', left.id, HOUR_MS), undefined)
  t.end()
})

await t.test('one principal cannot open sessions without end: the one unused for longest goes', (t) => {
  const ended: string[] = []
  const sessions = new CallerSessions(({ id }) => ended.push(id))
  const other = sessions.open(of('acme::b'), 0)
  const opened = Array.from({ length: 64 }, (_, at) => sessions.open(of('acme::a'), at).id)
  const [first = '', second = ''] = opened
  sessions.find('acme::a', first, 100)
  sessions.open(of('acme::a'), 101)
  t.same(ended, [second])
  t.ok(sessions.find('acme::a', first, 102))
  t.ok(sessions.find('acme::b', other.id, 102), 'another principal keeps its own')
  t.end()
})
