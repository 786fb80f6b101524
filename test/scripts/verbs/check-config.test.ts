import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkConfig } from '../../../scripts/verbs/check-config.ts'
import { testGateway } from '../../support/gateway.ts'
import { copyShipped, SHIPPED } from '../../support/plugins/shipped-files.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

/** Checks the files of a directory; returns the exit code and what was said. */
async function check(directory: string) {
  let out = ''
  let err = ''
  const code = await checkConfig(
    directory,
    {},
    {
      out: (...lines) => {
        out += lines.map((line) => `${line}\n`).join('')
      },
      err: (...lines) => {
        err += lines.map((line) => `${line}\n`).join('')
      },
    },
  )
  return { code, out, err }
}

await t.test(
  'check-config prints what a call must pass, the files and the digest, and exits 0',
  async (t) => {
    const { code, out, err } = await check(SHIPPED)
    t.equal(code, 0)
    t.equal(err, '')
    const lines = out.trimEnd().split('\n')
    t.strictSame(lines.slice(0, -1), [
      'What a call must pass, in this order:',
      '  llm            origin → demand → pin → dpop → api_key → capability → json_body → llm_call → llm_members → pin → capability → provider_state → rules → stop → limits → audit',
      '  mcp read       origin → pin → dpop → api_key → json_body → mcp_peek → mcp_message → mcp_resource_path → mcp_resource_path',
      '  mcp handshake  pin → single_use',
      '  mcp work       mcp_target → mcp_target → pin → capability → mcp_tool → mcp_state → rules → stop → limits → account → approval → audit',
      'Files that tune it, or add a check between capability and audit, in the order of their names:',
      '  10-pin.yaml         pin',
      '  20-dpop.yaml        dpop',
      '  30-capability.yaml  capability',
      '  40-audit.yaml       audit',
      'Files that are settings of the work after it, and not steps:',
      '  50-llm.yaml         llm',
      '  55-prices.yaml      prices',
      '  60-mcp.yaml         mcp',
      '  65-people.yaml      people',
      '  70-operators.yaml   operators',
    ])
    t.match(lines.at(-1), /config: ok \(digest [0-9a-f]{64}\)$/)
  },
)

await t.test("check-config prints an operator's own checks where a call meets them", async (t) => {
  const module = `export const plugin = ({ n }) => ({ name: 'mine_' + n, needs: [], admit() {} })`
  const directory = copyShipped(
    t.testdir({
      'mine.js': module,
      '36-a.yaml': 'plugin: ./mine.js\nn: second\n',
      '35-b.yaml': 'plugin: ./mine.js\nn: first\n',
    }),
  )
  const { out } = await check(directory)
  const steps = out.split('\n').filter((line) => line.includes('mine_'))
  t.equal(steps.length, 2)
  t.match(
    steps[0],
    /^ {2}llm .* → capability → provider_state → mine_first → mine_second → rules → stop → limits → audit$/,
  )
  t.match(
    steps[1],
    /^ {2}mcp work .* → mcp_state → mine_first → mine_second → rules → stop → limits → account → approval → audit$/,
  )
  t.match(out, /\n {2}35-b\.yaml +\.\/mine\.js\n {2}36-a\.yaml /)
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
    `${directory}/10-pin.yaml:2:1: unknown key "x" in plugin pin: did you mean trust_bundles?`,
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

await t.test('what is expected is judged by the database, where there is one', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', ['llm.chat'])
  const env = {
    MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
    MCP_PROXY_DATABASE_URL: gateway.settings.databaseUrl,
  }
  const directory = t.testdir()
  copyShipped(directory)
  const put = (...sentences: readonly string[]) =>
    writeFileSync(
      join(directory, '90-expect.yaml'),
      `plugin: expect\nexpect:\n${sentences.map((text) => `  - ${text}\n`).join('')}`,
    )
  put('acme::bot may use model gpt-*', 'acme::bot may not call *')
  t.match(await sallyport(['check-config', directory], env), { code: 0, err: '', out: /: ok \(digest / })
  put('acme::bot may use model gpt-*', 'acme::* may not use model *', 'acme::bot may call http.get')
  t.match(await sallyport(['check-config', directory], env), {
    code: 1,
    err: /^90-expect\.yaml:4: does not hold: acme::\* may not use model \*\n90-expect\.yaml:5: does not hold: /,
  })
  const nowhere = { MCP_PROXY_DATA_DIR: join(t.testdirName, 'none') }
  t.match(await sallyport(['check-config', directory], nowhere), {
    code: 0,
    out: /^3 expectations are not judged: the database is not there/,
  })
  put('acme::bot should use model gpt-*')
  t.match(await sallyport(['check-config', directory], env), { code: 1, err: /90-expect\.yaml:3:5: / })
})
