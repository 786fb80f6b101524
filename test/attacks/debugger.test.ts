import { once } from 'node:events'
import { Agent } from 'node:https'
import { type AddressInfo, connect, createServer } from 'node:net'
import t from 'tap'
import { ask } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'

/** A port of 127.0.0.1 that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** Whether somebody listens there. */
const isOpen = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    })
    socket.on('error', () => resolve(false))
  })

for (const options of [[], ['--disable-sigusr1']]) {
  t.test(`E3 SIGUSR1 opens no debugger, and the gateway serves on ${options.join()}`, async (t) => {
    const port = await freePort()
    const env = await environment(t.testdir({}), 'http://127.0.0.1:9')
    const { child, ready, ended, output } = startProcess(t, env, [...options, `--inspect-port=${port}`])
    const url = await ready
    const agent = new Agent({ rejectUnauthorized: false })
    // The thread that would open it is woken by the signal; each of these takes longer than that.
    for (let i = 0; i < 10; i++) {
      child.kill('SIGUSR1')
      t.equal((await ask(`${url}/health`, 'GET', { agent })).status, 200)
      t.equal(await isOpen(port), false)
    }
    t.notMatch(output(), /Debugger/)
    child.kill('SIGTERM')
    t.match(await ended, { code: 0, output: /^(?!.*Debugger)/s })
  })
}
