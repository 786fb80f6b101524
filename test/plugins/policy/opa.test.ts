import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { createServer } from 'node:net'
import { delimiter, join } from 'node:path'
import t, { type Test } from 'tap'
import { policyOptions } from '../../../plugins/policy/options.ts'
import { openPolicy } from '../../../plugins/policy/policy.ts'
import { toolFacts } from '../../support/plugins/policy-facts.ts'

// The Open Policy Agent itself, where it is installed: nothing of it was written here.
const OPA = process.env.OPA_BIN ?? inPath('opa')
const options = {
  skip: OPA === null ? 'no opa in PATH and no OPA_BIN: its own answers are not tried' : false,
}
const EXAMPLE = join(import.meta.dirname, '../../../plugins/config/examples/policy')
const RULES = [join(EXAMPLE, 'policy.rego'), join(EXAMPLE, 'data.json')]

function inPath(name: string): string | null {
  const paths = (process.env.PATH ?? '').split(delimiter).map((directory) => join(directory, name))
  return paths.find(executable) ?? null
}

function executable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch (error) {
    if (error instanceof Error) return false
    throw error
  }
}

const opa = (...args: string[]): string => execFileSync(String(OPA), args, { encoding: 'utf8', cwd: EXAMPLE })

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  return typeof address === 'object' && address ? address.port : 0
}

/** An agent with the example's rules. It stops with the test. */
async function agentOf(t: Test): Promise<string> {
  const port = await freePort()
  const args = ['run', '--server', '--addr', `127.0.0.1:${port}`, '--log-format', 'json', ...RULES]
  const child = spawn(String(OPA), args, { stdio: 'ignore' })
  t.teardown(async () => {
    child.kill()
    if (child.exitCode === null) await once(child, 'exit')
  })
  const url = `http://127.0.0.1:${port}`
  while (child.exitCode === null && !(await healthy(url)));
  return url
}

const healthy = (url: string): Promise<boolean> =>
  fetch(`${url}/health`).then(
    ({ ok }) => ok,
    () => false,
  )

/** The same calls to every engine. */
async function decisions(t: Test, engine: Record<string, unknown>): Promise<string[]> {
  const loaded = await openPolicy(
    policyOptions.parse({ arguments: 'values', deadline_ms: 10_000, ...engine }),
    EXAMPLE,
  )
  t.teardown(loaded.close)
  const found: string[] = []
  for (const capabilities of [[], ['acme.refunds'], ['acme.refunds', 'acme.refunds.large']]) {
    for (const amount of [
      1,
      100,
      100.5,
      -1,
      '1',
      null,
      true,
      [1],
      { a: 1 },
      '\u0000"\\\ud83d\ude00',
      1e300,
    ]) {
      const facts = toolFacts()
      const asked = {
        ...facts,
        principal: { ...facts.principal, capabilities },
        toolCall: {
          resource: 'payments',
          method: 'tools/call',
          arguments: { amount },
          argumentsSha256: null,
        },
      }
      found.push(
        await Promise.resolve(loaded.check.admit(asked)).then(
          () => 'allowed',
          (error: unknown) => String(error),
        ),
      )
    }
  }
  return found
}

await t.test('the example passes its own tests and is formatted', options, async (t) => {
  t.match(opa('test', '.'), /^PASS: 6\/6/m)
  t.equal(opa('fmt', '--list', '.').trim(), '')
  t.match(opa('check', '--strict', '.'), /^$/)
})

await t.test('the agent and the compiled policy decide the same', options, async (t) => {
  const url = await agentOf(t)
  const overHttp = await decisions(t, { engine: 'opa-http', url: `${url}/v1/data/sallyport/allow` })
  const committed = { engine: 'opa-wasm', bundle: 'policy.wasm', data: 'data.json' }
  t.strictSame(await decisions(t, committed), overHttp)
  t.equal(overHttp.filter((one) => one === 'allowed').length, 2 + 11)
  const bundle = join(t.testdir({}), 'bundle.tar.gz')
  opa('build', '-t', 'wasm', '-e', 'sallyport/allow', '--ignore', '*_test.rego', '-o', bundle, '.')
  t.strictSame(
    await decisions(t, { engine: 'opa-wasm', bundle }),
    overHttp,
    'compiled anew, as the README says',
  )
})

await t.test('a rule that the agent does not have refuses', options, async (t) => {
  const url = await agentOf(t)
  const found = await decisions(t, { engine: 'opa-http', url: `${url}/v1/data/sallyport/nothing` })
  t.same(
    new Set(found),
    new Set(['Error: A policy of this organisation refuses this call. Ask an operator why.']),
  )
  const lost = await decisions(t, { engine: 'opa-http', url: `${url}/v1/dato/sallyport` })
  t.same(
    new Set(lost),
    new Set([
      'Error: A check of this gateway failed, so the call is refused. Tell the operator the request id.',
    ]),
  )
})
