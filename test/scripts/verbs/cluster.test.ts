import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, realpathSync, rmSync } from 'node:fs'
import { Agent } from 'node:https'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { haproxyProgram } from '../../../scripts/cluster/haproxy.ts'
import { clusterGuide } from '../../../scripts/cluster/stage.ts'
import { isAlive } from '../../../scripts/cluster/tied.ts'
import { freePort } from '../../../scripts/free-port.ts'
import { ask, CHAT, PLUGIN_FILES, scratch, writeFiles } from '../../support/gateway.ts'
import { skipWithoutHaproxy } from '../../support/haproxy.ts'
import { NODE_COMPILE_CACHE, sallyport } from '../../support/run.ts'
import { eventually } from '../../support/settled.ts'
import { testUpstream } from '../../support/upstream.ts'

const PROGRAM = join(import.meta.dirname, '../../../scripts/sallyport.ts')

/** A place for a cluster whose providers are a test's, and what its processes need of the environment. */
async function place(t: Test) {
  const root = await scratch(t)
  const upstream = await testUpstream(t)
  await writeFiles(join(root, 'config'), PLUGIN_FILES, upstream.url)
  const data = join(root, 'cluster')
  t.teardown(() => {
    // As root its rows lie elsewhere, where the server's user may go.
    rmSync(realpathSync(join(data, 'postgres')), { recursive: true, force: true })
  })
  const env = {
    PATH: process.env.PATH ?? '',
    NODE_COMPILE_CACHE,
    MCP_PROXY_PLUGINS_DIR: join(root, 'config'),
    MCP_PROXY_SHUTDOWN_GRACE_S: '1',
    // What a gateway that runs alone here is told, and a replica must not be.
    MCP_PROXY_LISTEN: '127.0.0.1:9',
    MCP_PROXY_KEY_PASSPHRASE: 'somebody else’s',
  }
  return { root, data, upstream, env, port: String(await freePort()) }
}

type Place = Awaited<ReturnType<typeof place>>

/** Starts the verb as somebody at a terminal does. */
function start(t: Test, { data, env, port }: Place) {
  const args = [PROGRAM, 'cluster', '--replicas', '2', '--port', port, '--data', data]
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => {
      said += piece.toString()
    })
  const closed = once(child, 'close')
  const until = async (words: string): Promise<string> => {
    while (!said.includes(words)) {
      const [ended] = await Promise.race([once(child.stdout, 'data'), closed.then(() => [null])])
      if (ended === null && !said.includes(words))
        throw new Error(`it ended before it said ${words}: ${said}`)
    }
    return said
  }
  t.teardown(async () => {
    // Whatever is left then ends with it.
    child.kill('SIGKILL')
    await closed
    await eventually(pids, (all) => !all.some(isAlive))
  })
  const pids = (): readonly number[] => [...said.matchAll(/\(pid (\d+)\)/g)].map(([, pid]) => Number(pid))
  return { child, until, closed, pids, said: () => said }
}

/** A call of the agent whose identity lies in a directory. The status; 0 where there was no answer. */
async function chat(directory: string, port: string): Promise<number> {
  const read = (file: string): string => readFileSync(join(directory, file), 'utf8')
  const agent = new Agent({ ca: read('org-ca.crt'), cert: read('agent.crt'), key: read('agent.key') })
  return ask(`https://127.0.0.1:${port}/v1/chat/completions`, 'POST', { agent, body: CHAT }).then(
    ({ status }) => status,
    () => 0,
  )
}

t.test(
  'it serves, goes on without a replica, is verified, and Ctrl-C ends all of it',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const here = await place(t)
    const first = start(t, here)
    const said = await first.until('Ctrl-C ends')
    t.equal(first.pids().length, 3, 'PostgreSQL and two replicas')
    t.match(said, `HAProxy is in front of 2 replicas: https://localhost:${here.port}`)

    const identity = join(here.root, 'agent')
    const [, dataDir = ''] = /MCP_PROXY_DATA_DIR=(\S+) make agent/.exec(said) ?? []
    const enrolled = await sallyport(['agent', 'bot', '--caps', 'llm.chat', '--out', identity], {
      MCP_PROXY_DATA_DIR: dataDir,
    })
    t.match(enrolled, { code: 0 })
    t.equal(
      JSON.parse(readFileSync(join(identity, 'gateway.json'), 'utf8')).url,
      `https://localhost:${here.port}`,
    )
    for (let call = 0; call < 4; call += 1) t.equal(await chat(identity, here.port), 200)

    const again = await sallyport(['cluster', '--port', '0', '--data', here.data])
    t.match(again, { code: 1, err: /^sallyport: another Sallyport is running on .*: stop it first\n$/ })
    const taken = await sallyport(['cluster', '--port', here.port, '--data', join(here.root, 'other')])
    t.match(taken, { code: 1, err: `another process listens on 127.0.0.1:${here.port}: take another port` })

    process.kill(Number(/kill -9 (\d+)/.exec(said)?.[1]), 'SIGKILL')
    t.match(await first.until('has ended (exit code 137)'), /replica-1 has ended/)
    t.equal(
      await eventually(
        () => chat(identity, here.port),
        (status) => status === 200,
      ),
      200,
    )
    for (let call = 0; call < 4; call += 1) t.equal(await chat(identity, here.port), 200)

    const [, url = ''] = /verify-audit FILE="([^"]+)"/.exec(said) ?? []
    t.match(await sallyport(['verify', url]), { code: 0, out: /^whole: \d+ rows in 2 streams/ })

    first.child.kill('SIGINT')
    t.same(await first.closed, [0, null])
    t.notOk(first.pids().some(isAlive), 'nothing is left')

    const second = start(t, here)
    await second.until('Ctrl-C ends')
    t.equal(await chat(identity, here.port), 200, 'it goes on with what there was')
    const [postgres = 0] = second.pids()
    process.kill(postgres, 'SIGQUIT')
    t.same(await second.closed, [1, null])
    t.match(second.said(), /sallyport: PostgreSQL has ended: the cluster was stopped\n/)
    t.notOk(second.pids().some(isAlive), 'nothing is left')
  },
)

t.test('Ctrl-C before it is ready ends what has started', async (t) => {
  const here = await place(t)
  const started = start(t, here)
  await started.until('PostgreSQL is up')
  started.child.kill('SIGINT')
  t.same(await started.closed, [1, null])
  t.match(started.said(), /sallyport: the cluster was stopped before it was ready\n$/)
  t.notOk(started.pids().some(isAlive))
})

t.test('a replica that cannot start says why, and nothing is left', async (t) => {
  const here = await place(t)
  const env = { ...here.env, MCP_PROXY_ORG: 'a/b' }
  const started = start(t, { ...here, env })
  t.same(await started.closed, [1, null])
  t.match(
    started.said(),
    /sallyport: replica-\d did not start: MCP_PROXY_ORG must be .* \(.*replica-\d\.log\)\n$/,
  )
  t.notOk(started.pids().some(isAlive))
})

t.test('what cannot be done is said in one sentence', async (t) => {
  for (const replicas of ['0', '17', '1.5', 'x'])
    t.match(await sallyport(['cluster', '--replicas', replicas]), {
      code: 1,
      err: /^sallyport: --replicas must be/,
    })
  t.match(await sallyport(['cluster', '--port', '65536']), { code: 1, err: /^sallyport: --port must be/ })
})

t.test('without HAProxy it says so, how to have it, and where the replicas are', (t) => {
  t.equal(haproxyProgram('/nowhere:/', []), null)
  const tied = { pid: 7, output: () => '', ended: new Promise<never>(() => {}), signal: () => {} }
  const replica = (n: number) => ({
    name: `replica-${n}`,
    url: `https://localhost:900${n}`,
    dataDir: '',
    log: '',
    tied,
  })
  const shown = clusterGuide({
    directory: '/x',
    replicas: [replica(1), replica(2)],
    databaseUrl: 'postgresql:///y',
    port: null,
  })
  t.match(shown, /There is no HAProxy on this machine \(install it, e\.g\. apt-get install haproxy/)
  for (const line of ['  replica-1  https://localhost:9001\n', '  replica-2  https://localhost:9002\n'])
    t.match(shown, line)
  t.match(shown, '--key agents/cluster-agent/agent.key https://localhost:9001/v1/models')
  t.end()
})

t.test('where npm brings no PostgreSQL, it says for which platforms it does', async (t) => {
  const code = `Object.defineProperty(process, 'arch', { value: 'riscv64' })
    const { prepareServer } = await import(${JSON.stringify(join(import.meta.dirname, '../../../scripts/cluster/embedded-postgres.ts'))})
    prepareServer('/nowhere')`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  child.stderr.on('data', (piece: Buffer) => {
    said += piece.toString()
  })
  await once(child, 'close')
  t.match(said, /Error: PostgreSQL is not installed for \w+-riscv64: npm ci brings it for Linux and macOS/)
})
