import type { ServerResponse } from 'node:http'
import t from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import type { McpUpstreamOptions } from '../../../../proxy/mcp/upstream/client.ts'
import {
  type Act,
  legacy,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  type Told,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure } from '../../../support/mcp/upstream-calls.ts'
import { read, tool } from '../../../support/mcp/upstream-servers.ts'
import { eventually } from '../../../support/settled.ts'

const NOTE = { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 1, progress: 1 } }

/** Nobody knows what became of the call. */
const LOST = { ...failure('failed'), outcomeUnknown: true }

/** Writes these events, and ends the stream. */
function stream(res: ServerResponse, text: string): void {
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  res.end(text)
}

const event = (id: string, value: unknown = null): string =>
  `id: ${id}\ndata: ${value === null ? '' : JSON.stringify(value)}\n\n`

const isAsking = ({ method }: Told): boolean => method === 'GET'

/** A legacy server whose calls begin a stream as `begin` says, and whose GETs `more` answers. */
async function ending(
  t: Parameters<typeof rawMcp>[0],
  begin: Act,
  more: (res: ServerResponse, told: Told, call: Told) => void | Promise<void>,
  options: Partial<McpUpstreamOptions> = {},
) {
  let call: Told
  const serve = legacy({
    act: (res, told) => {
      call = told
      return begin(res, told)
    },
  })
  const raw = await rawMcp(t, (res, told) => (isAsking(told) ? more(res, told, call) : serve(res, told)))
  const upstream = upstreamFor(t, options)
  const made = callOf(raw.url, { resource: resourceAt(raw.url, { era: 'legacy' }) })
  const asked = () => raw.told.filter(isAsking)
  return { raw, upstream, call: made, asked, values: async () => all(await upstream.call(made)) }
}

const primed: Act = (res) => stream(res, `retry: 60\n${event('e1')}`)

await t.test(
  'SEP-1699 a stream that its server ends is asked for again by the id of its last event, in its session',
  async (t) => {
    const { values, asked, raw } = await ending(
      t,
      (res) => stream(res, `retry: 70\n${event('e1')}${event('e2', NOTE)}`),
      (res, told, call) => {
        if (told.headers['last-event-id'] === 'e2') stream(res, event('e3', NOTE))
        else stream(res, event('e4', result(call, { late: true })))
      },
    )
    const begun = performance.now()
    t.match(
      (await values()).map(({ value }) => value.result ?? value.method),
      ['notifications/progress', 'notifications/progress', { late: true }],
    )
    t.ok(performance.now() - begun >= 2 * 70, 'after the pause that the server has stated')
    t.match(
      asked().map(({ headers }) => headers),
      [
        {
          'last-event-id': 'e2',
          'mcp-session-id': 's1',
          'mcp-protocol-version': '2025-11-25',
          accept: 'text/event-stream',
        },
        { 'last-event-id': 'e3', 'mcp-session-id': 's1' },
      ],
    )
    t.equal(raw.of('notifications/cancelled').length, 0, 'and nothing is taken back')
    t.equal(raw.of('tools/call').length, 1, 'nor is the call sent again')
  },
)

await t.test('so is one that breaks off, and one whose server is away for a moment', async (t) => {
  let times = 0
  const { values } = await ending(
    t,
    (res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(`retry: 50\n${event('e1')}data: {"json`, () => res.destroy())
    },
    (res, _told, call) => {
      times += 1
      if (times < 3) res.destroy()
      else stream(res, event('e2', result(call, { whole: true })))
    },
  )
  t.match((await values()).at(-1)?.value, { result: { whole: true } })
  t.equal(times, 3)
})

await t.test('a response that came with the end of its stream needs no other', async (t) => {
  const { values, asked } = await ending(
    t,
    (res, told) => stream(res, `${event('e1')}${event('e2', result(told, { at: 'once' }))}`),
    (res) => void res.writeHead(405).end(),
  )
  t.match((await values()).at(-1)?.value, { result: { at: 'once' } })
  t.equal(asked().length, 0)
})

await t.test('where the rest cannot be had, nobody knows what became of the call', async (t) => {
  const never: Record<string, readonly [begin: Act, more: Act]> = {
    'the server has no such streams': [primed, (res) => void res.writeHead(405).end()],
    'it does not know the session any more': [primed, (res) => sendJson(res, {}, 404)],
    'it answers with a page': [
      primed,
      (res) => void res.writeHead(200, { 'content-type': 'text/html' }).end(),
    ],
    'it compresses the rest': [
      primed,
      (res) =>
        void res.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end('x'),
    ],
    'it wants a pause longer than it may be silent': [
      (res) => stream(res, `retry: 3600000\n${event('e1')}`),
      () => {},
    ],
    'no new event ever comes': [primed, (res) => stream(res, 'retry: 50\n\n')],
    'its streams have no ids': [(res) => stream(res, `data: ${JSON.stringify(NOTE)}\n\n`), () => {}],
    'an id that no header can carry': [(res) => stream(res, event('e\u00ff')), () => {}],
    'its last event takes the id back': [(res) => stream(res, `${event('e1')}${event('')}`), () => {}],
  }
  for (const [why, [begin, more]] of Object.entries(never)) {
    const { values, asked } = await ending(t, begin, more)
    await t.rejects(values(), LOST, why)
    t.ok(asked().length <= 5, why)
  }
})

await t.test('the time of a call and the size of its answer count over all of its streams', async (t) => {
  const endless = await ending(
    t,
    primed,
    (res, { headers }) => stream(res, event(`${String(headers['last-event-id'])}x`, NOTE)),
    { totalMs: 400 },
  )
  await t.rejects(endless.values(), LOST)
  t.ok(endless.asked().length < 10)
  let sent = 0
  const large = await ending(t, primed, (res) => {
    sent += 1
    stream(res, event(`e${sent}`, { ...NOTE, params: { filler: 'x'.repeat(60_000) } }))
  })
  await t.rejects(large.values(), failure('too_large'))
  t.equal(sent, 4)
})

await t.test('a caller that hangs up in the pause ends it, and the call is taken back', async (t) => {
  const { upstream, call, raw, asked } = await ending(
    t,
    (res) => stream(res, `retry: 15000\n${event('e1', NOTE)}`),
    () => {},
  )
  const hangup = new CallHangup()
  const answer = await upstream.call({ ...call, hangup })
  if (!answer.streamed) return t.fail('it streams')
  t.match(await answer.messages.next(), { value: { method: 'notifications/progress' } })
  const rest = Promise.resolve(answer.messages.next())
  hangup.hangUp(new Error('gone'))
  await t.rejects(rest, { message: 'gone' })
  t.equal(asked().length, 0)
  const told = await eventually(
    () => raw.of('notifications/cancelled'),
    (list) => list.length > 0,
  )
  t.equal(told.length, 1)
})

await t.test(
  'tools that are read, and a handshake, are had from a stream that goes on elsewhere',
  async (t) => {
    const begun = new Map<string, Told>()
    const raw = await rawMcp(t, (res, told) => {
      if (told.rpc === 'initialize' || told.rpc === 'tools/list') {
        begun.set(told.rpc, told)
        if (told.rpc === 'initialize') res.setHeader('mcp-session-id', 'opened')
        stream(res, `retry: 50\n${event(told.rpc)}`)
        return
      }
      if (!isAsking(told)) return serve(res, told)
      const call = begun.get(String(told.headers['last-event-id']))
      if (!call || told.session !== 'opened') return void res.writeHead(404).end()
      const serverInfo = { name: 'raw', version: '1' }
      const opened = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo }
      stream(res, event('last', result(call, call.rpc === 'initialize' ? opened : { tools: [tool('late')] })))
    })
    const serve = legacy()
    t.match(await read(t, raw), { era: 'legacy', tools: [{ name: 'late' }] })
  },
)

await t.test('2026-07-28 has no such streams: a server of it is not asked for the rest', async (t) => {
  const raw = await rawMcp(t, primed)
  const whole = async () => all(await upstreamFor(t).call(callOf(raw.url)))
  await t.rejects(whole(), LOST)
  t.equal(raw.told.length, 1)
})
