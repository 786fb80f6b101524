import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { startTied } from '../../../scripts/cluster/tied.ts'
import { haproxy, skipWithoutHaproxy } from '../../support/haproxy.ts'

/** A server that says its name to everyone and ends. */
async function speaker(t: Parameters<typeof haproxy>[0], name: string) {
  const server = createServer((socket) => {
    // A look of the balancer's ends with a reset.
    socket.on('error', () => {})
    socket.end(name)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => server.close())
  // Proven: it listens on a port.
  const { port } = server.address() as AddressInfo
  return { server, at: `127.0.0.1:${port}` }
}

t.test(
  'calls go round, and past a server that is gone, which is seen',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const speakers = [await speaker(t, 'one'), await speaker(t, 'two')]
    const balancer = await haproxy(
      t,
      speakers.map(({ at }) => at),
    )
    const said = (): Promise<string> => text(connect(balancer.port, '127.0.0.1'))
    t.same(new Set([await said(), await said()]), new Set(['one', 'two']))
    await new Promise((resolve) => speakers[0]?.server.close(resolve))
    for (let n = 0; n < 10; n += 1) t.equal(await said(), 'two')
    await balancer.until((servers) => servers.some(({ up }) => !up))
    t.match(await balancer.servers(), [
      { name: 's1', up: false },
      { name: 's2', up: true },
    ])
  },
)

t.test('a program that is tied ends with who started it, killed or not', async (t) => {
  const tied = await startTied('/bin/sh', ['-c', 'echo here; exec sleep 1000'])
  t.ok(tied.pid > 0)
  while (tied.output() === '') await new Promise(setImmediate)
  tied.signal('SIGKILL')
  t.match(await tied.ended, { code: 137, output: 'here\n' })
  const code = `import { startTied } from '${import.meta.dirname}/../../../scripts/cluster/tied.ts'
    console.log((await startTied('/bin/sleep', ['1000'])).pid)`
  const parent = await startTied(process.execPath, ['--input-type=module', '-e', code])
  t.teardown(() => parent.signal('SIGKILL'))
  while (!parent.output().includes('\n')) await new Promise(setImmediate)
  const pid = Number(parent.output())
  parent.signal('SIGKILL')
  await parent.ended
  for (;;) {
    try {
      process.kill(pid, 0)
    } catch {
      break
    }
    await new Promise(setImmediate)
  }
  t.pass('it has ended')
})
