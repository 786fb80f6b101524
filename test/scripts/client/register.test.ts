import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Ran, run } from '../../support/clients/files.ts'
import { arrivals, identityDirectory } from '../../support/clients/identity.ts'
import { CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { testUpstream } from '../../support/upstream.ts'

const ROOT = join(import.meta.dirname, '../../..')

/** Runs a program of one module with the preload, and SALLYPORT_IDENTITY where a directory is given. */
async function program(
  t: Test,
  directory: string | null,
  text: string,
  args: readonly string[],
  env: readonly string[] = [],
): Promise<Ran> {
  // In this repository, so that it finds undici and the SDKs as an application would.
  const module = join(await scratch(t), 'app.mjs')
  await writeFile(module, text.replaceAll("from 'undici'", `from '${ROOT}/node_modules/undici/index.js'`))
  const identity = directory === null ? [] : [`SALLYPORT_IDENTITY=${directory}`]
  const preload = ['--import', join(ROOT, 'scripts/register.ts')]
  return run('env', [...identity, ...env, process.execPath, ...preload, module, ...args])
}

const CALL = `{ method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer sk-mine' }, body: ${JSON.stringify(JSON.stringify(CHAT))} }`

await t.test("a program's own fetch reaches the gateway as the agent, without a change", async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const seen = arrivals(t, gateway)
  const app = `
    const answer = await fetch(process.argv[2] + '/v1/chat/completions', ${CALL})
    const { choices } = await answer.json()
    console.log(answer instanceof Response, answer.status, choices[0].message.content)
  `
  const ran = await program(t, directory, app, [gateway.url])
  t.same(ran, { code: 0, out: 'true 200 hello\n', err: '' })
  t.match(seen.at(-1)?.headers.authorization, /^DPoP /)
  t.equal(gateway.upstream.seen.length, 1)
})

await t.test('so does what goes by the global dispatcher of an undici of its own', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const app = `
    import { fetch, request } from 'undici'
    const url = process.argv[2] + '/v1/chat/completions'
    const { statusCode, body } = await request(url, ${CALL})
    console.log(statusCode, (await body.json()).object, (await fetch(url, ${CALL})).status)
  `
  const ran = await program(t, directory, app, [gateway.url])
  t.same(ran, { code: 0, out: '200 chat.completion 200\n', err: '' })
})

await t.test(
  'other origins are left as they were: their credentials, their proxy, their trust',
  async (t) => {
    const gateway = await testGateway(t)
    const directory = await identityDirectory(t, gateway)
    const other = await testUpstream(t)
    const app = `
    import { request } from 'undici'
    const [url, stranger] = process.argv.slice(2)
    await fetch(url + '/fetched', ${CALL})
    await request(url + '/requested', ${CALL})
    console.log(await fetch(stranger).then(() => 'trusted', ({ cause }) => cause.code))
  `
    const stranger = await testGateway(t)
    const ran = await program(t, directory, app, [other.url, `${stranger.url}/health`])
    t.equal(ran.code, 0, ran.err)
    t.match(ran.out, /SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO/, "the gateway's CA is for the gateway alone")
    t.same(
      other.seen.map(({ url, headers }) => [url, headers.authorization, headers.dpop]),
      [
        ['/fetched', 'Bearer sk-mine', undefined],
        ['/requested', 'Bearer sk-mine', undefined],
      ],
    )
  },
)

await t.test(
  'a proxy of the environment still serves the other origins, and never the gateway',
  async (t) => {
    const gateway = await testGateway(t)
    const directory = await identityDirectory(t, gateway)
    const proxy = await testUpstream(t)
    const app = `
    await fetch('http://elsewhere.example/through').catch(() => {})
    console.log((await fetch(process.argv[2] + '/v1/models')).status)
  `
    const env = ['NODE_USE_ENV_PROXY=1', `HTTP_PROXY=${proxy.url}`, `HTTPS_PROXY=${proxy.url}`]
    // A proxy is asked for a tunnel: what matters is that it is asked.
    const asked = new Promise<string>((resolve) => {
      proxy.server.on('connect', (req, socket) => {
        resolve(String(req.url))
        socket.end('HTTP/1.1 502 No\r\n\r\n')
      })
      proxy.answer = (res, { url }) => {
        resolve(url)
        res.end()
      }
    })
    const ran = await program(t, directory, app, [gateway.url], env)
    t.match(await asked, /elsewhere\.example/)
    t.match(ran, { code: 0, out: '200\n' })
  },
)

await t.test(
  'it says in one sentence what is missing, and the program does not run without it',
  async (t) => {
    const app = "console.log('ran')"
    const none = await program(t, null, app, [])
    t.match(none, { code: 1, out: '', err: /SALLYPORT_IDENTITY must name an identity directory/ })
    const empty = await program(t, await scratch(t), app, [])
    t.match(empty, { code: 1, out: '', err: /is not an identity directory: it has no agent\.key/ })
  },
)
