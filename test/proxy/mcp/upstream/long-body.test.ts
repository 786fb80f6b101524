import t from 'tap'
import { legacy, rawMcp, result, sendJson, upstreamFor } from '../../../support/mcp/raw-upstream.ts'
import { callOf, values } from '../../../support/mcp/upstream-calls.ts'

await t.test('A5: params of several MiB reach the server as they are, with their length', async (t) => {
  const server = await rawMcp(t, legacy({ act: (res, told) => sendJson(res, result(told, { ok: true })) }))
  const upstream = upstreamFor(t)
  // Each of these has other places where a piece ends inside a character of two units.
  for (const before of ['', 'a', 'é', '漢', '😀']) {
    for (const unit of ['a', '漢', '😀']) {
      const params = JSON.stringify({ name: 'echo', arguments: { text: before + unit.repeat(300_000) } })
      t.equal((await values(await upstream.call(callOf(server.url, { params })))).length, 1)
      const last = server.of('tools/call').at(-1)
      t.equal(JSON.stringify(last?.message.params) === params, true, `${before}${unit}`)
      t.equal(last?.headers['content-length'], String(last?.body.length))
      t.notOk(last?.headers['transfer-encoding'])
    }
  }
})
