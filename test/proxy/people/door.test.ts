import { writeFile } from 'node:fs/promises'
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import t from 'tap'
import { followPeopleCertificate, readPeopleCertificate } from '../../../proxy/people/certificate.ts'
import { testGateway } from '../../support/gateway.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'

await t.test(
  'while the listener is closed there is no route of it, and its library is not loaded',
  async (t) => {
    const loaded: string[] = []
    const hooks = registerHooks({
      load: (url, context, next) => {
        loaded.push(url)
        return next(url, context)
      },
    })
    t.teardown(() => hooks.deregister())
    const gateway = await testGateway(t, { files: { '65-people.yaml': 'plugin: people\nllm: none\n' } })
    t.equal(gateway.peoplePort, null)
    for (const path of ['/oauth/authorize', '/oauth/token', '/oauth/register', '/account'])
      t.equal((await gateway.call(null, 'GET', path)).status, 404, path)
    t.same(
      loaded.filter((url) => /node_modules\/(?:oidc-provider|koa)\//.test(url)),
      [],
    )
  },
)

await t.test('the listener says what it protects by its own URL, whatever Host says', async (t) => {
  const gateway = await peopleGateway(t)
  for (const [path, resource] of [
    ['', ''],
    ['/v1/mcp', '/v1/mcp'],
    ['/v1/mcp/files', '/v1/mcp/files'],
    ['/v1/files/mcp', '/v1/files/mcp'],
  ]) {
    const answer = await gateway.fetch(`${PEOPLE_URL}/.well-known/oauth-protected-resource${path}`, {
      headers: { host: 'evil.example' },
    })
    t.match(await answer.json(), {
      resource: `${PEOPLE_URL}${resource}`,
      authorization_servers: [PEOPLE_URL],
      scopes_supported: ['mcp'],
    })
  }
})

await t.test('the listener serves no administration, and asks nobody for a certificate', async (t) => {
  const gateway = await peopleGateway(t)
  for (const path of ['/v1/admin/users', '/proxy', '/metrics', '/v1/auth/token', '/v1/chat/completions'])
    t.equal((await gateway.fetch(`${PEOPLE_URL}${path}`)).status, 404, path)
})

await t.test('a certificate of its own is read again when its files have changed', async (t) => {
  const directory = t.testdir({ 'people.crt': 'no certificate', 'people.key': 'no key' })
  const people = {
    listen: { host: '127.0.0.1', port: 0 },
    url: PEOPLE_URL,
    tls: { cert: join(directory, 'people.crt'), key: join(directory, 'people.key') },
  }
  const settings = { people, tlsMinVersion: 'TLSv1.3' } as const
  const { chmod } = await import('node:fs/promises')
  await chmod(people.tls.key, 0o600)
  await t.rejects(readPeopleCertificate(settings), /are not a certificate and its key/)
  const gateway = await testGateway(t)
  const [cert, key] = await certified(gateway)
  await writeFile(people.tls.cert, cert)
  await writeFile(people.tls.key, key)
  const shown: string[] = []
  const { run } = followPeopleCertificate(settings, {
    usePeopleCertificate: ({ certPem }) => shown.push(certPem),
  })
  await run()
  await run()
  t.same(shown, [cert], 'once: it has not changed again')
  await writeFile(people.tls.key, 'no key')
  await t.rejects(run())
  t.equal(shown.length, 1)
})

/** A certificate and its key, whosever: an agent's. */
async function certified(gateway: Awaited<ReturnType<typeof testGateway>>): Promise<[string, string]> {
  const { cert, key } = await gateway.enroll('bot', [])
  return [cert, key]
}
