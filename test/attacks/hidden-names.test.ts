import t from 'tap'
import { SECTIONS } from '../../proxy/dashboard/frame/frame.ts'
import { html } from '../../proxy/operators/pages/html.ts'
import { testGateway } from '../support/gateway.ts'
import { changingServer, tool } from '../support/mcp/admin-server.ts'
import { signedInBySecret } from '../support/oidc/jar.ts'

/** One of each kind: what turns a text round, what nobody sees, what is a letter of nothing, tags. */
const HIDING = '\u202e\u200b\u2066\ufeff\u00ad\u3164\u{e0041}'
const NAME = `gpt${HIDING}4`
const HIDDEN = /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/u

/** Extracts what people read of a page: its text, and the attributes that a browser shows. */
const readOf = (page: string): string =>
  page
    .replaceAll(/<textarea[^>]*>[^<]*/g, '')
    .replaceAll(/ (?!title|aria-label|alt|placeholder|data-button)[\w-]+="[^"]*"/g, '')
    .replaceAll(/[\n\t]/g, ' ')

await t.test('H15: no word of a stranger hides anything on any page', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
  const bot = await gateway.enroll('bot', [])
  const chat = { model: NAME, messages: [] }
  const { headers } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: chat })
  await gateway.admin('POST', '/v1/admin/users', {
    user_name: 'u',
    display_name: 'u\u3164\u115f\ufe0f',
    capabilities: [],
  })
  const server = await changingServer(t, { ...tool('read'), description: NAME })
  const { json } = await gateway.admin('POST', '/v1/admin/mcp-resources', {
    name: 'files',
    endpoint_url: server.url,
  })
  server.list([{ ...tool('read'), description: `${NAME} and more` }])
  await gateway.admin('POST', `/v1/admin/mcp-resources/${json.resource_id}/refresh`)
  const jar = await signedInBySecret(gateway)
  const seen = new Set<string>()
  const asked = [
    ...SECTIONS.map(([path]) => path),
    `/proxy/activity?${new URLSearchParams({ model: NAME }).toString()}`,
    `/proxy/activity/${String(headers['x-request-id'])}`,
    `/proxy/tools/${json.resource_id}`,
    '/proxy/agents/acme::bot/usage',
    `/proxy/agents?${new URLSearchParams({ q: NAME }).toString()}`,
  ]
  const told: string[] = []
  // Every page that is reached by a link of one that is shown, two links far.
  for (let round = 0; round < 2; round += 1) {
    for (const path of asked.splice(0)) {
      if (seen.has(path) || seen.size > 80) continue
      seen.add(path)
      const { text, status, headers: of } = await jar.ask('GET', path)
      if (status !== 200 || !String(of['content-type']).startsWith('text/html')) continue
      if (/\\u\{(?:202e|3164)\}/.test(text)) told.push(path)
      const found = HIDDEN.exec(readOf(text))
      t.equal(
        found,
        null,
        `${path}: ${JSON.stringify(readOf(text).slice((found?.index ?? 0) - 80, (found?.index ?? 0) + 20))}`,
      )
      for (const [, link = ''] of text.matchAll(/href="(\/proxy\/[^"#]+)"/g)) {
        const next = link.replaceAll('&amp;', '&')
        if (!next.startsWith('/proxy/assets/')) asked.push(next)
      }
    }
  }
  for (const path of [
    '/proxy/activity',
    `/proxy/activity/${String(headers['x-request-id'])}`,
    `/proxy/tools/${json.resource_id}`,
    '/proxy/users',
  ])
    t.ok(told.includes(path), `${path} shows it, and what it hides`)
})

await t.test('H15: what a form gives back is exact, and line breaks and tabs stay', (t) => {
  const value = 'a\u200b"b'
  t.equal(
    html`<input name="x" value="${value}"><textarea>${value}</textarea>`.text,
    '<input name="x" value="a\u200b&quot;b"><textarea>a\u200b&quot;b</textarea>',
  )
  t.equal(
    html`<a href='/x?${value}' title="${value}">${value}</a>`.text,
    `<a href='/x?a\u200b&quot;b' title="a\\u{200b}&quot;b">a\\u{200b}&quot;b</a>`,
  )
  t.equal(html`<p class="${'a'}">${'x="'}${value}</p>`.text, '<p class="a">x=&quot;a\\u{200b}&quot;b</p>')
  t.equal(html`<pre>${'a\n\tb\r\u001b[2K'}</pre>`.text, '<pre>a\n\tb\\u{d}\\u{1b}[2K</pre>')
  t.end()
})
