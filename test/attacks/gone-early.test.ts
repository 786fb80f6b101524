import t from 'tap'
import { testGateway } from '../support/gateway.ts'
import { rawConnect, requestBytes } from '../support/raw.ts'
import { eventually } from '../support/settled.ts'

const SECRET = 'a-secret-that-is-not-remembered'

await t.test(
  'F-30 a caller that hangs up while its secret is verified leaves nothing that a stop would wait for',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: SECRET })
    const headers = [`x-admin-secret: ${SECRET}`, 'content-length: 20']
    const { send, socket, closed } = await rawConnect(t, gateway, null)
    send(requestBytes('POST', '/v1/admin/agents', headers))
    // Answered in the order of their coming: when this one is, that one is at its 200 ms of bcrypt.
    await gateway.call(null, 'GET', '/health')
    socket.destroy()
    await closed
    const line = () =>
      gateway.log.find(({ method, path }) => method === 'POST' && path === '/v1/admin/agents')
    t.match(await eventually(line, Boolean), { reason: 'bad_request', ending: 'client_gone' })
  },
)
