import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import t from 'tap'
import { createFetch } from '../../../../scripts/client/create-fetch.ts'
import { approvalStage } from '../../../support/approvals/stage.ts'
import { identityDirectory } from '../../../support/clients/identity.ts'
import type { Json } from '../../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const SELF = { name: 'approval-client', version: '1.0.0' }
const CAPABILITIES = { capabilities: { elicitation: { url: {} } } }

async function throughHelper(t: Parameters<typeof mcpStage>[0]) {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('pay')])
  const files = await stage.register('files', server, { approval: 'operator' })
  const directory = await identityDirectory(t, stage, ['files.use'])
  await stage.bind({ id: 'acme::bot', cert: '', key: '' }, files)
  const ann = as(stage, await operatorNamed(stage, 'ann', ['admin.approve', 'admin.read']))
  const approve = async (url: string): Promise<void> => {
    const { status } = await ann('POST', `/v1/admin/approvals/${url.split('/').at(-1)}/approve`, {})
    t.equal(status, 204, url)
  }
  return { stage, fetch: createFetch(directory), approve, url: `${stage.url}/v1/mcp`, ann }
}

await t.test(
  'a client of 2026-07-28 opens the page, and its call passes once somebody has approved it',
  async (t) => {
    const { fetch, approve, url } = await throughHelper(t)
    const client = new ClientV2(SELF, {
      ...CAPABILITIES,
      versionNegotiation: { mode: { pin: '2026-07-28' } },
    })
    const opened: string[] = []
    client.setRequestHandler('elicitation/create', async ({ params }: { readonly params: Json }) => {
      t.equal(params.mode, 'url')
      opened.push(params.url)
      await approve(params.url)
      return { action: 'accept' as const }
    })
    t.teardown(() => client.close())
    await client.connect(new TransportV2(new URL(url), { fetch }))
    const paid: Json = await client.callTool({ name: 'files.pay', arguments: { n: 1 } })
    t.match(paid.content, [{ text: '{"name":"pay","arguments":{"n":1}}' }], 'the server sees the call alone')
    t.equal(opened.length, 1)
  },
)

await t.test('a client of 2025-11-25 is told the page by an error, and calls again', async (t) => {
  const { fetch, approve, url } = await throughHelper(t)
  const client = new ClientV1(SELF, CAPABILITIES)
  t.teardown(() => client.close())
  const transport = new TransportV1(new URL(url), { fetch })
  await client.connect(transport as Parameters<typeof client.connect>[0])
  const call = () => client.callTool({ name: 'files.pay', arguments: { n: 1 } })
  const error: Json = await call().then(
    () => t.fail('it must wait'),
    (reason: unknown) => reason,
  )
  t.equal(error.code, -32042)
  const [asked] = error.elicitations ?? error.data.elicitations
  t.match(asked, { mode: 'url', url: /\/proxy\/approvals\/apr_/ })
  await approve(asked.url)
  t.match((await call()).content, [{ type: 'text' }])
})

await t.test(
  'a client that cannot open a page gets a sentence, and one that has not waited is not asked twice',
  async (t) => {
    const { stage, bot } = await approvalStage(t)
    const asking = { elicitation: { url: {} } }
    const _meta = { 'io.modelcontextprotocol/clientCapabilities': asking }
    const pay = (more: Json = {}) =>
      stage.callTool(bot, 'files.pay', { n: 1 }, { modern: true, params: { _meta, ...more } })
    const first = (await pay()).json.result
    t.equal(first.resultType, 'input_required')
    const again = { requestState: first.requestState, inputResponses: { approval: { action: 'accept' } } }
    t.equal((await pay(again)).json.error.code, -31007)
    const other = await stage.callTool(
      bot,
      'files.read',
      { n: 1 },
      { modern: true, params: { _meta, ...again } },
    )
    t.equal(other.json.error.code, -32602, 'the state is of that call alone')
    const unasked = await pay({ inputResponses: { approval: { action: 'accept' } } })
    t.equal(unasked.json.error.code, -32602, 'answers that nobody has asked for')
    const plain = await stage.callTool(bot, 'files.pay', { n: 1 }, { modern: true })
    t.equal(plain.json.error.code, -31007)
  },
)
