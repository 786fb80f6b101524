import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkConfig } from '../../../scripts/verbs/check-config.ts'
import { sallyport } from '../../support/run.ts'

const ROOT = join(import.meta.dirname, '../../..')
const SHIPPED = join(ROOT, 'plugins/config')

/** Checks the files of a directory; returns the exit code and what was said. */
async function check(directory: string) {
  let out = ''
  let err = ''
  const code = await checkConfig(
    directory,
    {},
    {
      out: (text) => {
        out += text
      },
      err: (text) => {
        err += text
      },
    },
  )
  return { code, out, err }
}

await t.test('check-config prints the order of the pipeline and the digest, and exits 0', async (t) => {
  const { code, out, err } = await check(SHIPPED)
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
  const { code, out, err } = await check(directory)
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
  const { code, err } = await sallyport(['check-config'], { MCP_PROXY_PLUGINS_DIR: directory })
  t.equal(code, 1)
  t.match(err, `${directory}/wrong.yaml:1:1: `)
})

await t.test('check-config explains itself, and refuses what it does not know', async (t) => {
  t.match(await sallyport(['check-config', '--help']), { code: 0, out: /^usage: /, err: '' })
  t.match(await sallyport(['check-config', '--halp']), { code: 2, out: '', err: /--halp/ })
  t.match(await sallyport(['check-config', 'a', 'b']), { code: 2, out: '', err: /one directory at a time/ })
})

await t.test('check-config as a command says plugins/config: ok', async (t) => {
  const { code, out, err } = await sallyport(['check-config'])
  t.equal(code, 0)
  t.match(out, /^plugins\/config: ok \(digest [0-9a-f]{64}\)$/m)
  t.equal(err, '')
  t.match(await sallyport(['check-config', '/gone']), {
    code: 1,
    err: '/gone:1:1: the directory of plugin files cannot be read (ENOENT)\n',
  })
})
