import { createServer } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../../scripts/client/sidecar.ts'
import { clientSession } from '../../../scripts/client/signing/session.ts'
import { shellExports } from '../../../scripts/verbs/env.ts'
import { identityDirectory } from '../../support/clients/identity.ts'
import { testGateway } from '../../support/gateway.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const PROVIDERS = `plugin: llm
providers:
  - {name: anthropic, dialect: anthropic, base_url: UPSTREAM/v1, api_key: k, models: ["claude-*"], lossy: [grammar]}
  - {name: openai, dialect: openai, base_url: UPSTREAM/v1, api_key: k, models: ["gpt-*"], aliases: {lax: {model: gpt-9, lossy: all}}}
  - {name: local, dialect: openai, server: deepseek, base_url: UPSTREAM/v1, api_key: k, models: ["ds*"], lossy: [hosted_tools]}
  - {name: all, dialect: openai, server: vllm, base_url: UPSTREAM/v1, api_key: k, models: ["qwen*"]}
`

const gateway = await testGateway(t, {
  files: { '50-llm.yaml': PROVIDERS, '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n' },
})
const identity = await identityDirectory(t, gateway, [])

/** The lines about one client, without their comment signs. */
const about = (out: string, client: string): string =>
  (
    out.split('\n\n').find((part) => new RegExp(`^# ${client} (?:does not )?reach`).test(part)) ?? ''
  ).replaceAll(/^# {3}/gm, '')

await t.test('env --model says how the two clients reach a model, and what to type', async (t) => {
  const shown = async (model: string, ...more: readonly string[]) => {
    const ran = await sallyport(['env', '--model', model, '--identity', identity, ...more])
    t.match(ran, { code: 0, err: '' }, model)
    return [about(ran.out, 'Claude Code'), about(ran.out, 'Codex'), ran.out] as const
  }
  const [onClaude, codexOnClaude, lines] = await shown('claude-opus-5')
  t.match(onClaude, /^# Claude Code reaches claude-opus-5 directly: nothing is lost\n/)
  t.match(onClaude, /^claude --model claude-opus-5$/m)
  t.match(codexOnClaude, /^# Codex reaches claude-opus-5, translated: .* does not speak OpenAI Responses\n/)
  t.match(codexOnClaude, /^model = "claude-opus-5"\nweb_search = "disabled" {2}# .*\(hosted_tools\)$/m)
  t.match(codexOnClaude, /^model_provider = "sallyport"\n\[model_providers\.sallyport\]$/m)
  t.match(codexOnClaude, /must accept verbosity:/, 'its provider accepts grammar')
  t.match(lines, /^export ANTHROPIC_BASE_URL=http:\/\/127\.0\.0\.1:8787 /m, 'in force for a shell')
  t.notMatch(lines, /MCP|Python with/, 'and of this model alone')

  const [onGpt, codexOnGpt, direct] = await shown('gpt-5.6', '--direct')
  t.match(onGpt, /^# Claude Code reaches gpt-5\.6, translated: .* Anthropic Messages$/m)
  t.match(onGpt, /^claude --model gpt-5\.6 --disallowedTools WebSearch$/m)
  t.match(onGpt, /refused here \(hosted_tools\)/)
  t.match(codexOnGpt, /^# Codex reaches gpt-5\.6 directly: nothing is lost$/m)
  t.notMatch(codexOnGpt, 'web_search')
  t.match(direct, new RegExp(`^export ANTHROPIC_BASE_URL=${gateway.url}$`, 'm'))

  const [onChat, codexOnChat] = await shown('ds-4')
  t.match(onChat, /left out here \(hosted_tools\)/, 'an operator accepts that')
  t.notMatch(codexOnChat, 'web_search')
  t.match(codexOnChat, /left out of calls.*\n.*must accept grammar and verbosity:/)
  const [onLax] = await shown('lax')
  t.match(onLax, /left out here/, 'an alias accepts what it says itself')
  for (const text of (await shown('qwen-4')).slice(0, 2)) t.match(text, 'directly: nothing is lost')

  const reached = { model: 'm', wires: { messages: 'none', responses: 'none' }, lossy: [] } as const
  const none = shellExports({ port: 1, identity: null, direct: false, reached })
  t.equal(
    about(none, 'Claude Code').trim(),
    '# Claude Code does not reach m: no provider of it speaks Anthropic Messages, and this gateway does not translate',
  )
})

await t.test('env --model asks through the sidecar if no identity is named', async (t) => {
  const session = clientSession(readIdentity(identity))
  const sidecar = await startSidecar(session, '127.0.0.1', 0)
  t.teardown(() => sidecar.close(0).then(() => session.close()))
  const { port } = new URL(sidecar.url)
  const ran = await sallyport(['env', '--model', 'gpt-5.6', '--port', port])
  t.match(ran, { code: 0, err: '', out: /^# Codex reaches gpt-5\.6 directly/m })
  t.match(ran.out, `base_url = "${sidecar.url}/v1"`)
})

await t.test('env --model says in a sentence why it cannot tell', async (t) => {
  const asked = (...args: readonly string[]) => sallyport(['env', '--model', ...args])
  const refusedAs = async (args: readonly string[], sentence: RegExp): Promise<void> => {
    t.match(await asked(...args), { code: 1, out: '', err: sentence }, args.join(' '))
  }
  await refusedAs(
    ['mistral', '--identity', identity],
    /^sallyport: no provider of https:\S+ has the model "mistral"\. It lists lax\.\n$/,
  )
  await refusedAs(['a\nb', '--identity', identity], /^sallyport: the name of the model has a line feed/)
  await refusedAs(
    ['gpt-5.6', '--identity', join(identity, 'none')],
    /gateway\.json|is not an identity directory/,
  )
  const closed = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => closed.once('listening', resolve))
  const address = closed.address()
  const port = typeof address === 'object' ? String(address?.port) : ''
  await new Promise((resolve) => closed.close(resolve))
  await refusedAs(
    ['gpt-5.6', '--identity', identity, '--gateway', `https://localhost:${port}`],
    /^sallyport: no gateway answers at https:\/\/localhost:\d+: .*ECONNREFUSED/,
  )
  await refusedAs(
    ['gpt-5.6', '--port', port],
    /^sallyport: no sidecar answers at http:\/\/127\.0\.0\.1:\d+: start one \(.*\), or name the identity, --identity DIR\n$/,
  )
  const other = createServer((_, res) => res.end('{"id":"gpt-5.6"}')).listen(0, '127.0.0.1')
  await new Promise((resolve) => other.once('listening', resolve))
  t.teardown(() => other.close())
  const where = other.address()
  await refusedAs(
    ['gpt-5.6', '--port', typeof where === 'object' ? String(where?.port) : ''],
    /does not say how calls reach a model: is it an older gateway\?\n$/,
  )
})
