import t from 'tap'
import type { UpstreamCall } from '../../../../proxy/mcp/upstream/client.ts'
import {
  legacy,
  type RawMcp,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure } from '../../../support/mcp/upstream-calls.ts'
import { TOOL_CALL } from '../../../support/permit.ts'
import { eventually } from '../../../support/settled.ts'

const MINUTE = 60_000

const legacyCall = ({ url }: RawMcp, fields: Partial<UpstreamCall> = {}): UpstreamCall =>
  callOf(url, { resource: resourceAt(url, { era: 'legacy' }), ...fields })

const by = (principalId: string, sessionId: string | null = null) => ({ owner: { principalId, sessionId } })

/** What an upstream is sent without anybody waiting for it. */
const ended = (raw: RawMcp, count: number): Promise<void> => arrived(raw, 'DELETE', count)

async function arrived(raw: RawMcp, rpc: string, count: number): Promise<void> {
  await eventually(
    () => raw.of(rpc).length,
    (found) => found >= count,
  )
}

await t.test(
  'a session that was idle for ten minutes is ended, and begun anew when it is needed',
  async (t) => {
    let at = 0
    const raw = await rawMcp(t, legacy())
    const upstream = upstreamFor(t, { clock: () => at })
    const use = async (principal: string) => all(await upstream.call(legacyCall(raw, by(principal))))
    await use('acme::idle')
    at = 5 * MINUTE
    await use('acme::busy')
    at = 10 * MINUTE
    await use('acme::busy')
    await ended(raw, 1)
    t.match(raw.of('DELETE'), [{ session: 's1', headers: { 'mcp-protocol-version': '2025-11-25' } }])
    await use('acme::idle')
    t.same(
      raw.of('tools/call').map(({ session }) => session),
      ['s1', 's2', 's2', 's3'],
    )
  },
)

await t.test('a session with a request under way is not idle', async (t) => {
  let at = 0
  const go = Promise.withResolvers<void>()
  const raw = await rawMcp(
    t,
    legacy({
      act: async (res, told) => {
        if (told.session === 's1') await go.promise
        sendJson(res, result(told))
      },
    }),
  )
  const upstream = upstreamFor(t, { clock: () => at })
  const slow = upstream.call(legacyCall(raw, by('acme::slow')))
  await arrived(raw, 'tools/call', 1)
  at = 60 * MINUTE
  await all(await upstream.call(legacyCall(raw, by('acme::other'))))
  go.resolve()
  await all(await slow)
  await all(await upstream.call(legacyCall(raw, by('acme::slow'))))
  t.equal(raw.of('DELETE').length, 0)
  t.equal(raw.of('initialize').length, 2)
})

await t.test(
  'of one principal at most 100 sessions are kept, and the one used last of all goes',
  async (t) => {
    const raw = await rawMcp(t, legacy())
    const upstream = upstreamFor(t)
    const use = async (principal: string, session: string) =>
      all(await upstream.call(legacyCall(raw, by(principal, session))))
    await use('acme::bob', 'x')
    for (let count = 1; count <= 100; count += 1) await use('acme::alice', String(count))
    await use('acme::alice', '1')
    t.equal(raw.of('DELETE').length, 0)
    await use('acme::alice', '101')
    await ended(raw, 1)
    t.equal(raw.of('DELETE')[0]?.session, 's3', 'the second one of alice, for the first was used again')
  },
)

await t.test(
  'sessions at an endpoint that was changed are ended there, and begun at the new one',
  async (t) => {
    const before = await rawMcp(t, legacy({ sessionId: () => 'old' }))
    const after = await rawMcp(t, legacy({ sessionId: () => 'new' }))
    const upstream = upstreamFor(t)
    await all(await upstream.call(legacyCall(before)))
    const resource = resourceAt(after.url, { era: 'legacy', revision: 2 })
    await all(await upstream.call(legacyCall(after, { resource })))
    await ended(before, 1)
    t.equal(before.of('DELETE')[0]?.session, 'old')
    t.equal(after.of('tools/call')[0]?.session, 'new')
    const gone = resourceAt(before.url, { era: 'legacy' })
    await t.rejects(upstream.respond(TOOL_CALL, gone, by('acme::alice').owner, '{}'), failure('failed'))
  },
)

await t.test('the end of a session at our door ends what it opened, and nothing else', async (t) => {
  const raw = await rawMcp(t, legacy())
  const upstream = upstreamFor(t)
  for (const [principal, session] of [
    ['acme::alice', 'a'],
    ['acme::alice', 'b'],
    ['acme::alice', null],
    ['acme::bob', 'a'],
  ] as const)
    await all(await upstream.call(legacyCall(raw, by(principal, session))))
  await upstream.endSession('acme::alice', 'a')
  t.match(raw.of('DELETE'), [{ session: 's1' }])
  t.equal(raw.of('DELETE').length, 1)
  await upstream.endSession('acme::alice', 'a')
  t.equal(raw.of('DELETE').length, 1)
})

await t.test('an upstream that will not hear of the end of a session changes nothing', async (t) => {
  const serve = legacy()
  const raw = await rawMcp(t, (res, told) =>
    told.method === 'DELETE' ? void res.socket?.destroy() : serve(res, told),
  )
  const upstream = upstreamFor(t)
  await all(await upstream.call(legacyCall(raw, by('acme::alice', 'a'))))
  await upstream.endSession('acme::alice', 'a')
  await all(await upstream.call(legacyCall(raw, by('acme::alice', 'a'))))
  t.equal(raw.of('tools/call').length, 2)
})

await t.test('when the gateway stops, sessions are ended and nothing is begun', async (t) => {
  const raw = await rawMcp(t, legacy())
  const upstream = upstreamFor(t)
  await all(await upstream.call(legacyCall(raw, by('acme::alice'))))
  await all(await upstream.call(legacyCall(raw, by('acme::bob'))))
  await upstream.close()
  t.same(new Set(raw.of('DELETE').map(({ session }) => session)), new Set(['s1', 's2']))
  await t.rejects(upstream.call(legacyCall(raw)), failure('unreachable'))
  t.equal(raw.of('tools/call').length, 2)
})
