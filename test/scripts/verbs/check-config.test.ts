import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { checkConfig } from '../../../scripts/verbs/check-config.ts'

const ROOT = join(import.meta.dirname, '../../..')
const SHIPPED = join(ROOT, 'plugins/config')

/** What the command says and its exit code. */
async function run(args: readonly string[], env: Record<string, string> = {}) {
  let out = ''
  let err = ''
  const code = await checkConfig(args, env, {
    out: (text) => {
      out += text
    },
    err: (text) => {
      err += text
    },
  })
  return { code, out, err }
}

await t.test('check-config prints the order of the pipeline and the digest, and exits 0', async (t) => {
  const { code, out, err } = await run([SHIPPED])
  t.equal(code, 0)
  t.equal(err, '')
  const [pin, dpop, gate, audit, llm, mcp, verdict] = out.split('\n')
  t.strictSame(
    [pin, dpop, gate, audit, llm, mcp],
    [
      '  10-pin.yaml         pin',
      '  20-dpop.yaml        dpop',
      '  30-capability.yaml  capability',
      '  40-audit.yaml       audit',
      '  50-llm.yaml         llm',
      '  60-mcp.yaml         mcp',
    ],
  )
  t.match(verdict, /config: ok \(digest [0-9a-f]{64}\)$/)
})

await t.test('check-config prints every problem as file:line:column: message and exits 1', async (t) => {
  const directory = t.testdir({
    '10-pin.yaml': 'plugin: pin\nx: 1\n',
    '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: of\n',
  })
  const { code, out, err } = await run([directory])
  t.equal(code, 1)
  t.equal(out, '')
  t.strictSame(err.split('\n'), [
    `${directory}/10-pin.yaml:2:1: unknown key "x" in plugin pin: did you mean rotation_grace_hours?`,
    `${directory}/20-dpop.yaml:2:19: egress_dpop_mode must be off, optional or required, got "of"`,
    '',
  ])
})

await t.test('check-config reads the directory that the gateway would', async (t) => {
  const directory = t.testdir({})
  writeFileSync(join(directory, 'wrong.yaml'), '')
  const { code, err } = await run([], { MCP_PROXY_PLUGINS_DIR: directory })
  t.equal(code, 1)
  t.match(err, `${directory}/wrong.yaml:1:1: `)
})

await t.test('check-config explains itself, and refuses what it does not know', async (t) => {
  t.match(await run(['--help']), { code: 0, out: /^usage: /, err: '' })
  t.match(await run(['--halp']), { code: 2, out: '', err: /--halp/ })
  t.match(await run(['a', 'b']), { code: 2, out: '', err: /one directory at a time/ })
})

await t.test('check-config as a command says plugins/config: ok', async (t) => {
  const { MCP_PROXY_PLUGINS_DIR: _, ...env } = process.env
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ['scripts/verbs/check-config.ts'], {
    cwd: ROOT,
    env,
  })
  t.match(stdout, /^plugins\/config: ok \(digest [0-9a-f]{64}\)$/m)
  t.equal(stderr, '')
  const failing = promisify(execFile)(process.execPath, ['scripts/verbs/check-config.ts', '/gone'], {
    cwd: ROOT,
    env,
  })
  await t.rejects(failing, {
    code: 1,
    stderr: '/gone:1:1: the directory of plugin files cannot be read (ENOENT)\n',
  })
})
