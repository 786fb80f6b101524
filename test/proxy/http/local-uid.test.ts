import { chmod, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import t from 'tap'
import { controlPath } from '../../../proxy/http/control-socket.ts'
import { ANOTHER_USER, askAsAnotherUser, mayBeOthers } from '../../support/another-user.ts'
import { overSocket } from '../../support/control.ts'
import { ADMIN_SECRET, type TestGateway, testGateway } from '../../support/gateway.ts'
import { operatorNamed } from '../../support/operators.ts'

const AGENTS = '/v1/admin/agents'
const own = `socket:${process.getuid?.()}`

const creators = async (gateway: TestGateway): Promise<readonly string[]> =>
  (await gateway.rows({ action: 'agent.created' })).map(({ principal_id: who }) => String(who)).reverse()

/** Lets every user of this machine reach the control socket, as somebody may do for a group. */
async function shared(dataDirectory: string): Promise<string> {
  const path = controlPath(dataDirectory)
  await chmod(path, 0o666)
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder)) {
    const { mode } = await stat(folder)
    if ((mode & 0o001) === 0) await chmod(folder, (mode & 0o7777) | 0o001)
  }
  return path
}

await t.test('the control socket acts as the user whose process has connected', async (t) => {
  const gateway = await testGateway(t)
  const local = overSocket(controlPath(gateway.settings.dataDir))
  t.equal((await local('POST', AGENTS, { agent_name: 'by-us' })).status, 201)
  t.same(await creators(gateway), [own])
})

await t.test(
  'another user who was let to the socket is itself there, and not the gateway',
  { skip: mayBeOthers ? false : 'skipped: only root can start a process of another user' },
  async (t) => {
    const gateway = await testGateway(t)
    const path = await shared(gateway.settings.dataDir)
    t.equal(await askAsAnotherUser(path, 'POST', AGENTS, { agent_name: 'by-them' }), 201)
    t.same(await creators(gateway), [`socket:${ANOTHER_USER}`])
    const [agent] = (await gateway.admin('GET', AGENTS)).json
    t.equal(agent.created_by, `socket:${ANOTHER_USER}`)
  },
)

await t.test(
  'what is brought along to the socket speaks for nobody: not the deputy, the caller',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = await operatorNamed(gateway, 'alice', ['admin.read'])
    const local = overSocket(controlPath(gateway.settings.dataDir))
    const brought: readonly Record<string, string>[] = [
      { 'x-admin-secret': ADMIN_SECRET },
      { 'x-admin-secret': 'a wrong secret of somebody' },
      { cookie: `__Host-sallyport=${'a'.repeat(43)}`, 'x-csrf-token': 'a' },
      { 'x-forwarded-client-cert': encodeURIComponent(alice.cert) },
      { 'x-ssl-client-cert': encodeURIComponent(alice.cert), 'x-forwarded-for': '127.0.0.1' },
      { authorization: 'DPoP abc', dpop: 'abc' },
    ]
    for (const [index, headers] of brought.entries()) {
      const made = await local('POST', AGENTS, { agent_name: `bot-${index}` }, headers)
      t.equal(made.status, 201, Object.keys(headers).join(' '))
    }
    t.same(
      await creators(gateway),
      brought.map(() => own),
    )
    const rows = await gateway.rows({ action: 'agent.created' })
    t.ok(rows.every(({ detail }) => detail.via === 'socket'))
  },
)
