import { cp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

await t.test(
  'sallyport rehearse tells a person who would be stopped, and a script by its exit code',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'x'])
    for (let call = 0; call < 3; call += 1)
      await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const env = {
      MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
      MCP_PROXY_DATABASE_URL: gateway.settings.databaseUrl,
    }
    const rehearse = (...args: string[]) => sallyport(['rehearse', ...args], env)

    const stops = await rehearse('acme::bot', '--set', 'x')
    t.match(stops, { code: 3, err: '', out: /^3 decisions of 1 principal, .*: 0 as they were$/m })
    t.match(
      stops.out,
      /^would be refused: 3\n {2}WHO +AT +LACKS +CALLS +SINCE +LAST\n {2}acme::bot +\S+ +llm\.chat +3 +20/m,
    )
    const [, id = ''] = /^rehearsal (reh_\w+)$/m.exec(stops.out) ?? []
    t.equal((await gateway.admin('GET', `/v1/admin/rehearsals/${id}`)).status, 200)
    t.match(await rehearse('acme::bot', '--set', 'llm.chat', '--last', '24h'), {
      code: 0,
      out: /^would be refused: 0$/m,
    })
    t.match(await rehearse('--mode', 'required'), { code: 3, out: / proof_required / })
    t.match(JSON.parse((await rehearse('acme::bot', '--deactivate', '--json')).out), {
      totals: { newly_refused: 3 },
    })

    for (const [args, err] of [
      [['acme::bot'], /give a principal and a change/],
      [['--set', 'x'], /give a principal and a change/],
      [['acme::bot', '--set', 'x', '--last', 'ever'], /--last must be like 90m, 24h or 30d, got "ever"/],
      [['acme::bot', '--set', 'x', '--last', '99999d'], /^sallyport: since: /],
      [['acme::bot', '--set', 'X!'], /^sallyport: changes\[0\]\.capabilities\[0\]: must match/],
      [['acme::nobody', '--set', 'x'], /^sallyport: changes\[0\]\.principal: is not a principal/],
      [['acme::bot', '--bind', 'nowhere'], /^sallyport: changes\[0\]\.resource: is not an MCP server/],
      [['--mode', 'sometimes'], /^sallyport: changes\[0\]\.settings\.egress_dpop_mode: /],
      [['--config', '/nowhere'], /^sallyport: --config \/nowhere: there is no such directory$/m],
      [['acme::bot', '--set', 'x', '--as', '/nowhere'], /^sallyport: --as \/nowhere: there is no such dir/],
      [
        ['acme::bot', '--set', 'x', '--gateway', 'https://localhost'],
        /^sallyport: --gateway needs --as DIR$/m,
      ],
    ] as const)
      t.match(await rehearse(...args), { code: 2, err })
    const sets = (...args: string[]) => sallyport(['sets', ...args], env)
    t.match(await sets('put', 'reader', '--caps', 'llm.chat'), { code: 0, out: 'reader = llm.chat\n' })
    t.match(await sets('list'), { code: 0, out: /^reader +nobody +nobody +llm\.chat$/m })
    const apply = (...args: string[]) => sets('apply', ...args)
    const found =
      /^acme::bot -\S+.*\n1 of 1 agents would change\ncalls of the last 30 days that this would have refused: 3\n/
    t.match(await apply('bot', '--replace', 'x', '--dry-run'), { code: 0, out: found })
    t.match(await apply('bot', '--add', 'y'), { code: 0, out: 'acme::bot +y\n1 of 1 agents change\ndone\n' })
    t.match(await apply('bot', '--remove', 'y'), { code: 0, out: /^acme::bot -y$/m })
    t.match(await apply('bot', '--remove', 'y'), { code: 0, out: '0 of 1 agents change\n' })
    for (const [args, err] of [
      [['bot'], /must have one of add and remove, replace, set/],
      [['bot', '--set', 'nobody'], /no set with the name nobody/],
      [['bot', '--set', 'reader', '--add', 'y'], /must have one of/],
      [['bot', '--add', 'y', '--kind', 'operators'], /--kind must be agents, users, workloads/],
      [['--add', 'y'], /give one search/],
    ] as const)
      t.match(await apply(...args), { code: 1, err })
    t.match(await sets('delete', 'reader'), { code: 0, out: 'reader is deleted\n' })
    t.match(await sets('delete', 'reader'), { code: 1, err: /no set with the name reader/ })
    const providers = await sallyport(['providers', 'list'], env)
    t.match(providers, { code: 0, out: /^openai +set +answers since 20\S+ +3 +0 +\d+ ms$/m })
    t.match(await sallyport(['providers', 'try', 'nobody'], env), {
      code: 1,
      err: /No provider of this name/,
    })
    const whatIf = (...args: string[]) => sallyport(['what-if', 'acme::bot', ...args], env)
    t.match(await whatIf('--model', 'gpt-5'), { code: 0, out: /^it would be let through, to openai$/m })
    t.match(await whatIf('--tool', 'files.read'), { code: 1, out: /^it would be refused: \w+: /m })
    t.match(await whatIf(), { code: 1, err: /give --model or --tool/ })
    const usage = await sallyport(['usage', 'acme::bot'], env)
    t.match(usage, { code: 0, out: /^acme::bot: 3 decisions since / })
    t.match(usage.out, /^llm\.chat +held +3 +0 +20\S+ +\S+$/m)
    t.match(usage.out, /^held but not used: x\nlacking: nothing$/m)
    const suggested = await sallyport(['suggest', 'acme::bot', '--last', '24h'], env)
    t.match(
      suggested.out,
      /used llm\.chat; held but not used: x\nmake rehearse ARGS='acme::bot --set llm\.chat --last 24h'\n$/,
    )
    t.match(await sallyport(['usage'], env), { code: 1, err: /name one principal/ })
  },
)

await t.test(
  'sallyport rehearse --config tries a directory of files on the calls that were made',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const call = () => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const env = {
      MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
      MCP_PROXY_DATABASE_URL: gateway.settings.databaseUrl,
    }
    const next = t.testdir()
    await cp(gateway.pluginsDir, next, { recursive: true })
    const rehearse = (...more: string[]) => sallyport(['rehearse', '--config', next, ...more], env)
    await call()
    t.match(await rehearse(), { code: 0, err: '', out: /: 1 as they were$/m }, 'the files in force')

    // A check is watched first, and what it said is what the rehearsal goes by.
    const own = 'plugin: ./none.ts\nmodel: gpt-test\n'
    const code = `export const plugin = ({ model }, { Refusal }) => ({
  name: 'none', needs: ['call'],
  admit: ({ call }) => { if (call.model === model) throw new Refusal('policy_denied') },
})\n`
    for (const directory of [gateway.pluginsDir, next]) await writeFile(join(directory, 'none.ts'), code)
    await writeFile(join(next, '35-none.yaml'), own)
    await writeFile(join(next, 'more.ts'), code.replace("'none'", "'more'"))
    await writeFile(join(next, '36-more.yaml'), own.replace('none', 'more'))
    const open = 'the check none was never asked; the check more was never asked'
    t.match(await rehearse(), { code: 4, out: new RegExp(`^cannot be decided: 1, ${open}$`, 'm') })
    await rm(join(next, '36-more.yaml'))
    t.match(await rehearse(), { code: 4, out: /^cannot be decided: 1, the check none was never asked$/m })
    await writeFile(join(gateway.pluginsDir, '35-none.yaml'), `shadow: true\n${own}`)
    t.equal(await gateway.reload(), true)
    t.equal((await call()).status, 200)
    const found = await rehearse()
    t.match(found, { code: 3, out: /^would be refused: 1$/m })
    t.match(found.out, /acme::bot +gpt-test +policy_denied +1 /)
    t.match(found.out, /^cannot be decided: 1, the check none was never asked$/m)
    await writeFile(join(gateway.pluginsDir, '35-none.yaml'), own)
    t.equal(await gateway.reload(), true)
    t.equal((await call()).status, 403, 'and so it is')

    t.match(await rehearse('--mode', 'off'), { code: 2, err: /--config cannot be combined with --mode/ })
    await writeFile(join(next, '20-dpop.yaml'), 'plugin: dpop\negress_dpop_mode: requird\n')
    t.match(await rehearse(), { code: 1, err: /20-dpop\.yaml:2:19: / }, 'nothing is rehearsed')
  },
)
