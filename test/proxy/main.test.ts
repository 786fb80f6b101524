import { mkdir, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { scratch } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'

const NOWHERE = 'http://127.0.0.1:9'

const PROVIDERS = `plugin: llm
providers:
  - {name: one, dialect: openai, base_url: "http://127.0.0.1:9/v1", api_key: "\${env:FIRST_KEY:-}"}
  - {name: two, dialect: openai, base_url: "http://127.0.0.1:9/v1"}
  - {name: three, dialect: openai, base_url: "http://127.0.0.1:9/v1", api_key: "\${env:THIRD_KEY}"}
  - {name: four, dialect: openai, base_url: "http://127.0.0.1:9/v1", auth: passthrough}
`

await t.test('the start says which providers have no key, and what would give them one', async (t) => {
  const root = await scratch(t)
  const env = await environment(root, NOWHERE)
  await mkdir(join(root, 'config'), { recursive: true })
  await writeFile(join(root, 'config', '50-llm.yaml'), PROVIDERS)
  const { ready, output } = startProcess(t, { ...env, THIRD_KEY: 'sk-third-secret' })
  await ready
  const then = 'and start again; until then calls of its models are answered 503'
  t.same(output().match(/^sallyport: no key .*$/gm), [
    `sallyport: no key for one: set FIRST_KEY ${then}`,
    `sallyport: no key for two: set its api_key in 50-llm.yaml ${then}`,
  ])
  t.notMatch(output(), 'sk-third')
})

await t.test('a taken port is refused with a command that takes another one', async (t) => {
  const taken = createServer()
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
  t.teardown(() => taken.close())
  // Listening on TCP, as asked the line above.
  const { port } = taken.address() as AddressInfo
  const env = await environment(await scratch(t), NOWHERE)
  const address = `127.0.0.1:${port}`
  const why = 'another process listens there; take another port, e.g. '
  const runtime = await startProcess(t, { ...env, MCP_PROXY_LISTEN: address }).ended
  t.equal(runtime.code, 1)
  t.match(runtime.output, `cannot listen on ${address} (MCP_PROXY_LISTEN): ${why}make start PORT=`)
  const admin = await startProcess(t, { ...env, MCP_PROXY_ADMIN_LISTEN: address }).ended
  t.match(admin.output, `(MCP_PROXY_ADMIN_LISTEN): ${why}MCP_PROXY_ADMIN_LISTEN=127.0.0.1:`)
})
