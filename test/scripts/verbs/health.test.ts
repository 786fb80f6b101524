import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { scratch, testGateway } from '../../support/gateway.ts'
import { sallyport } from '../../support/run.ts'

t.test('health says whether the gateway of a data directory is ready, without a secret', async (t) => {
  const gateway = await testGateway(t)
  const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
  t.match(await sallyport(['health'], env), { code: 0, out: /^\{"status":"ready".*\}\n$/, err: '' })
  t.same(await sallyport(['health', '--live'], env), { code: 0, out: '{"status":"ok"}\n', err: '' })
  await gateway.close(0)
  const gone = await sallyport(['health', '--live'], env)
  t.match(gone, { code: 1, out: '', err: /^sallyport: no gateway answers on .*: .*ENOENT.*\n$/ })
})

t.test('health gives up on one that is not ready, or says nothing', async (t) => {
  const directory = await scratch(t)
  const env = { MCP_PROXY_DATA_DIR: directory }
  // What openControl answers before the gateway serves.
  let answer = 'HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n'
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.write(answer)
  })
  t.teardown(() => server.close())
  await once(server.listen(join(directory, 'control.sock')), 'listening')
  t.match(await sallyport(['health'], env), { code: 1, err: '' })
  answer = ''
  t.match(await sallyport(['health', '--timeout', '0.1'], env), { code: 1, err: /no gateway answers on/ })
  t.match(await sallyport(['health', '--timeout', 'x'], env), { code: 1, err: /--timeout must be/ })
})
