import t from 'tap'
import type { ResolveHost } from '../../../../proxy/egress/agent.ts'
import {
  legacy,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure } from '../../../support/mcp/upstream-calls.ts'
import { READING } from '../../../support/permit.ts'

/** The same endpoint under a name, which `resolve` answers as the test wants. */
const named = (url: string): string => url.replace('127.0.0.1', 'mcp.example')
const LOOPBACK = [{ address: '127.0.0.1', family: 4 }] as const

/** A resolver that first fails so many times. */
function failing(times: number): { resolve: ResolveHost; asked: () => number } {
  let asked = 0
  const resolve: ResolveHost = async () => {
    asked += 1
    if (asked <= times) throw Object.assign(new Error('no such host'), { code: 'ENOTFOUND' })
    return LOOPBACK
  }
  return { resolve, asked: () => asked }
}

await t.test('§2.2 a connection that could not be made is tried once more', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const { resolve, asked } = failing(1)
  t.equal((await all(await upstreamFor(t, { resolve }).call(callOf(named(raw.url))))).length, 1)
  t.equal(asked(), 2)
  t.equal(raw.told.length, 1)
  t.equal(raw.told[0]?.headers.host, new URL(named(raw.url)).host)
})

await t.test('§2.2 and no more than once', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const { resolve, asked } = failing(2)
  await t.rejects(upstreamFor(t, { resolve }).call(callOf(named(raw.url))), failure('unreachable'))
  t.equal(asked(), 2)
  t.equal(raw.told.length, 0)
})

await t.test(
  '§2.2 a request that was sent is never sent again, even on a connection that had served before',
  async (t) => {
    let count = 0
    const raw = await rawMcp(t, (res, told) => {
      count += 1
      if (count === 2) res.socket?.resetAndDestroy()
      else sendJson(res, result(told))
    })
    const upstream = upstreamFor(t)
    await all(await upstream.call(callOf(raw.url)))
    await t.rejects(upstream.call(callOf(raw.url)), failure('unreachable'))
    t.equal(raw.told.length, 2)
    await all(await upstream.call(callOf(raw.url)))
  },
)

await t.test('an upstream that is down is unreachable', async (t) => {
  const raw = await rawMcp(t)
  // A port on which nothing listens: no server of ours may listen on the one for discarding.
  const url = raw.url.replace(/:\d+/, ':9')
  await t.rejects(upstreamFor(t).call(callOf(url)), failure('unreachable'))
})

await t.test('threat 19 a forbidden address is not connected to, and not tried again', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  let asked = 0
  const resolve: ResolveHost = async () => {
    asked += 1
    return LOOPBACK
  }
  const upstream = upstreamFor(t, { allowPrivate: false, resolve })
  await t.rejects(upstream.call(callOf(named(raw.url))), failure('unreachable'))
  t.equal(asked, 1)
  await t.rejects(upstream.call(callOf(raw.url)), failure('unreachable'))
  await t.rejects(
    upstream.read(READING, resourceAt(raw.url), new AbortController().signal),
    failure('unreachable'),
  )
  t.equal(raw.told.length, 0)
})

await t.test(
  'threat 19 an endpoint outside its domains, or of another kind, is not connected to',
  async (t) => {
    const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
    const upstream = upstreamFor(t, { resolve: async () => LOOPBACK })
    const call = async (url: string, allowed_domains: string[] = []) =>
      all(await upstream.call(callOf(url, { resource: resourceAt(url, { allowed_domains }) })))
    await t.rejects(call(raw.url, ['mcp.example']), failure('failed'))
    await t.rejects(call(named(raw.url), ['example', 'x.mcp.example']), failure('failed'))
    await t.rejects(call(raw.url.replace('//', '//user:word@')), failure('failed'))
    await t.rejects(call('file:///etc/passwd'), failure('failed'))
    await t.rejects(call('not a url'), failure('failed'))
    t.equal(raw.told.length, 0)
    t.equal((await call(named(raw.url), ['mcp.example'])).length, 1)
  },
)

await t.test('no two resources share a connection, nor two revisions of one', async (t) => {
  const raw = await rawMcp(t)
  const upstream = upstreamFor(t)
  const seen = new Set<unknown>()
  let sum = 0
  for (const [resource_id, revision] of [
    ['mcpr_1', 1],
    ['mcpr_2', 1],
    ['mcpr_2', 2],
  ] as const) {
    const own = new Set<unknown>()
    raw.act = (res, told) => {
      own.add(res.socket)
      sendJson(res, result(told))
    }
    const resource = resourceAt(raw.url, { resource_id, revision })
    for (let count = 0; count < 10; count += 1) {
      await all(await upstream.call(callOf(raw.url, { resource })))
      // A turn for the connection to be given back.
      await new Promise((resolve) => setImmediate(resolve))
    }
    t.ok(own.size < 10, 'a connection of its own serves again')
    sum += own.size
    for (const socket of own) seen.add(socket)
  }
  t.equal(seen.size, sum)
})

await t.test('cookies of an upstream are not kept', async (t) => {
  const serve = legacy()
  const raw = await rawMcp(t, (res, told) => {
    res.setHeader('set-cookie', 'a=b')
    return serve(res, told)
  })
  const resource = resourceAt(raw.url, { era: 'legacy' })
  await all(await upstreamFor(t).call(callOf(raw.url, { resource })))
  for (const { headers } of raw.told) t.notHas(headers, { cookie: '' })
})
