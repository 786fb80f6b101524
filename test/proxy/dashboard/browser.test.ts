import { execFileSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t from 'tap'
import { complaintsOf, signIn, stage } from '../../support/dashboard/stage.ts'
import { agentOf, ask, testGateway } from '../../support/gateway.ts'
import { openChromium, skipWithoutChromium as skip } from '../../support/oidc/chromium.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(240_000)

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
const AXE = readFileSync(join(import.meta.dirname, '../../../node_modules/axe-core/axe.min.js'), 'utf8')

/** Where pictures of every page go, where somebody asks for them: `TEST_PICTURES=1`. */
const PICTURES = process.env.TEST_PICTURES ? join(import.meta.dirname, '../../.artifacts') : null

/** Takes the picture of a page, whole. */
async function picture(page: Page, path: string, size: string): Promise<void> {
  if (PICTURES === null) return
  const name = `${path.replaceAll(/[^a-z0-9]+/g, '-').slice(1)}-${size}.png`
  await page.screenshot({ path: join(PICTURES, name), fullPage: true })
}

await t.test(
  'axe finds nothing serious on any page, on a phone and a desk, light and dark',
  { skip },
  async (t) => {
    const { gateway, paths } = await stage(t)
    const context = await (await openChromium(t, gateway))()
    const complaints = complaintsOf(context)
    const page = await context.newPage()
    await signIn(page, gateway)
    for (const path of paths) {
      t.equal((await page.goto(gateway.url + path))?.status(), 200, path)
      for (const [width, colorScheme] of [
        [375, 'light'],
        [1280, 'dark'],
      ] as const) {
        await page.setViewportSize({ width, height: 800 })
        await page.emulateMedia({ colorScheme })
        await picture(page, path, `${width}-${colorScheme}`)
        await page.evaluate(AXE)
        const serious = await page.evaluate(
          `axe.run().then(({ violations }) => violations
            .filter(({ impact }) => impact === 'serious' || impact === 'critical')
            .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).join(' ')))`,
        )
        t.same(serious, [], `${path}, ${colorScheme}`)
      }
    }
    await page.emulateMedia({ media: 'print' })
    t.equal(await page.locator('header').isVisible(), false, 'print leaves out what only a screen needs')
    t.same(complaints, [])
  },
)

await t.test(
  'a whole day by keyboard: to the page, through its lines, to the search, to any page',
  { skip },
  async (t) => {
    const { gateway } = await stage(t)
    const context = await (await openChromium(t, gateway))()
    const page = await context.newPage()
    await signIn(page, gateway)
    await page.keyboard.press('Tab')
    t.equal(await page.evaluate('document.activeElement.textContent'), 'Skip to the page')
    await page.goto(`${gateway.url}/proxy/agents`)
    await page.keyboard.press('j')
    t.equal(await page.evaluate('document.activeElement.textContent'), 'none')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'bot', exact: true }).waitFor()
    await page.goto(`${gateway.url}/proxy/agents`)
    await page.keyboard.press('/')
    await page.keyboard.type('cap:reports.read')
    await page.keyboard.press('Enter')
    await page.waitForURL(/q=cap/)
    t.same(await page.locator('a.row').allTextContents(), ['bot'])
    await page.keyboard.press('Control+k')
    await page.keyboard.type('proo')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Proof' }).waitFor()
  },
)

await t.test(
  'while one types, the form says what would be refused; with scripts off the first press does, and changes nothing',
  { skip },
  async (t) => {
    const { gateway } = await stage(t)
    const open = await openChromium(t, gateway)
    const holds = async () => (await gateway.admin('GET', '/v1/admin/agents/acme::bot')).json.capabilities
    for (const javaScriptEnabled of [true, false]) {
      const page = await (await open({ javaScriptEnabled })).newPage()
      await signIn(page, gateway)
      await page.goto(`${gateway.url}/proxy/agents/acme::bot`)
      await page.getByLabel('All capabilities').fill('reports.read')
      const says = page.getByRole('button', { name: 'Update: 2 calls of the last 30 days would be refused' })
      if (javaScriptEnabled) {
        await says.waitFor()
        await page.getByLabel('All capabilities').fill('llm.chat, Bad-Token')
        await page.locator('.problem', { hasText: 'Bad-Token' }).waitFor()
        await page.getByLabel('All capabilities').fill('llm.chat, rep')
        await page.getByRole('button', { name: 'reports.read' }).click()
        t.equal(await page.getByLabel('All capabilities').inputValue(), 'llm.chat, reports.read, ')
      } else {
        await page.getByRole('button', { name: 'Update' }).click()
        await says.waitFor()
        t.same(await holds(), ['llm.chat', 'reports.read'], 'nothing has changed')
        await says.click()
        await page.getByText('One row in the ledger says so').waitFor()
        t.same(await holds(), ['reports.read'])
      }
    }
  },
)

await t.test(
  'a changed tool is read beside the one before, what hides written out, and approved',
  { skip },
  async (t) => {
    const { gateway, tools } = await stage(t)
    const page = await (await (await openChromium(t, gateway))()).newPage()
    await signIn(page, gateway)
    await page.getByRole('link', { name: 'Read and approve' }).click()
    await page.waitForURL(gateway.url + tools)
    t.match(await page.locator('.diff').textContent(), 'Does read.\\u{200b} Ignore')
    await page.getByRole('button', { name: 'Approve what I have read' }).click()
    await page.getByText('Approved. The tool').waitFor()
    t.equal((await gateway.rows({ action: 'mcp_resource.tool_approved' })).length, 1)
    await page.goto(`${gateway.url}/proxy`)
    t.equal(await page.getByText('Read and approve').count(), 0)
  },
)

await t.test(
  'from nothing: the printed link, a secret, an agent, its first call, a refused one, a grant, a theft ended, a pack that verifies',
  { skip },
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_SECRET: '' } })
    const context = await (await openChromium(t, gateway))()
    const complaints = complaintsOf(context)
    const page = await context.newPage()
    await page.goto(`${gateway.url}/proxy/setup?code=${gateway.setupCode}`)
    await page.getByLabel('Operator secret').fill('short')
    await page.getByText('too short').waitFor()
    await page.getByLabel('Operator secret').fill('correct-Horse-7-battery')
    await page.getByText('strong').waitFor()
    await page.getByLabel('Repeat it').fill('correct-Horse-7-battery')
    await page.getByRole('button', { name: 'Set it and sign in' }).click()
    await page.getByLabel('Organisation').waitFor()
    await page.getByRole('button', { name: 'Continue' }).click()
    await page.getByLabel('Name').fill('first')
    await page.getByLabel('Capabilities').fill('llm')
    await page.getByRole('button', { name: 'llm.chat' }).click()
    await page.getByRole('button', { name: 'Enroll it' }).click()
    await page.getByText('Waiting for the first call').waitFor()
    const [key = '', cert = ''] = await page.locator('[data-file]').allTextContents()
    const first = { id: 'acme::first', key, cert }
    t.equal((await gateway.call(first, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    await page.getByText('The first call has arrived.').waitFor()
    await page.locator('#first-call a.row').click()
    await page.getByText('✓ capability').waitFor()

    const list = () =>
      gateway.call(first, 'POST', '/v1/mcp', {
        body: { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
        headers: { accept: 'application/json, text/event-stream' },
      })
    t.match((await list()).json, { error: {} }, 'a call that is refused')
    await page.getByRole('link', { name: 'Attention' }).click()
    await page.getByRole('link', { name: 'Grant…' }).click()
    await page.getByRole('button', { name: 'Update' }).click()
    await page.getByText('Updated').waitFor()
    t.match((await list()).json, { result: {} }, 'what was granted')

    const stolen = agentOf(gateway.ca, first, true)
    t.teardown(() => stolen.destroy())
    const steal = async () => (await ask(`${gateway.url}/v1/models`, 'GET', { agent: stolen })).status
    t.equal(await steal(), 200, 'whoever has copied the folder')
    await page.goto(`${gateway.url}/proxy/agents/acme::first`)
    await page.getByRole('button', { name: 'End it now' }).click()
    await page.getByRole('button', { name: 'End it now' }).click()
    const status = await eventually(steal, (status) => status === 401, 10_000)
    t.equal(status, 401, 'is out within ten seconds of the click')

    await page.getByRole('link', { name: 'Proof' }).click()
    const verifying = (await page.getByText('node verify.mjs').textContent()) ?? ''
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'everything' }).click(),
    ])
    const cwd = t.testdir()
    await download.saveAs(join(cwd, 'evidence.zip'))
    execFileSync('python3', ['-m', 'zipfile', '-e', 'evidence.zip', '.'], { cwd })
    t.match(execFileSync('/bin/sh', ['-c', verifying], { cwd, encoding: 'utf8' }), /VERIFIED|CONSISTENT/)

    // The key was shown once: no way back brings it.
    let shown = ''
    for (let step = 0; step < 4; step += 1) {
      await page.goBack().catch(() => null)
      await page.waitForLoadState()
      shown += await eventually(
        () => page.content().catch(() => null),
        (text) => text !== null,
      )
    }
    t.notMatch(shown, key.slice(60, 100))
    t.same(complaints, [])
  },
)

await t.test(
  'the organisation is named in a browser: the page that says what comes arrives, and so does the next',
  { skip },
  async (t) => {
    const gateway = await testGateway(t)
    const context = await (await openChromium(t, gateway))()
    const complaints = complaintsOf(context)
    const page = await context.newPage()
    await signIn(page, gateway)
    await page.goto(`${gateway.url}/proxy/settings`)
    await page.getByRole('link', { name: 'Name it' }).click()
    await page.getByLabel('Organisation').fill('initech')
    await page.getByLabel('Trust domain').fill('initech.example')
    await page.getByRole('button', { name: 'Continue' }).click()
    await page.getByText('your browser will warn once more').waitFor()
    t.match(await page.locator('pre.copy').textContent(), '-----BEGIN CERTIFICATE-----')
    await page.getByRole('link', { name: 'Continue to the first agent' }).click()
    await page.getByLabel('Name').waitFor()
    t.same(complaints, [])
  },
)

await t.test(
  'the folder of a new agent is one file, made in the browser of what the page shows: no second request has its key',
  { skip },
  async (t) => {
    const gateway = await testGateway(t)
    const context = await (await openChromium(t, gateway))()
    const complaints = complaintsOf(context)
    const page = await context.newPage()
    await signIn(page, gateway)
    await page.goto(`${gateway.url}/proxy/agents`)
    await page.getByText('Enroll an agent').first().click()
    await page.getByLabel('Name').fill('first')
    await page.getByRole('button', { name: 'Enroll an agent' }).click()
    const [key = '', cert = ''] = await page.locator('[data-file]').allTextContents()
    const asked: string[] = []
    context.on('request', (request) => asked.push(request.url()))
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save all of them as first.tar' }).click(),
    ])
    t.equal(download.suggestedFilename(), 'first.tar')
    const directory = t.testdir()
    await download.saveAs(join(directory, 'first.tar'))
    execFileSync('tar', ['xf', 'first.tar'], { cwd: directory })
    const folder = join(directory, 'agents/first')
    const read = (name: string): string => readFileSync(join(folder, name), 'utf8')
    t.equal(read('agent.key'), key)
    t.equal(read('agent.crt'), cert)
    t.equal(read('org-ca.crt'), gateway.ca)
    t.match(read('ca-chain.pem'), gateway.ca)
    t.match(JSON.parse(read('gateway.json')), { url: /^https:\/\//, agent_id: 'acme::first' })
    t.equal(statSync(join(folder, 'agent.key')).mode & 0o777, 0o600)
    t.same(
      asked.filter((url) => !url.startsWith('blob:') && !url.endsWith('/first-call')),
      [],
    )
    t.same(complaints, [])
  },
)

await t.test(
  'by keyboard, a set is tried alongside the real one and a binding released, with scripts and without',
  { skip },
  async (t) => {
    const { gateway } = await stage(t)
    const open = await openChromium(t, gateway)
    for (const javaScriptEnabled of [true, false]) {
      const page = await (await open({ javaScriptEnabled })).newPage()
      await signIn(page, gateway)
      await page.goto(`${gateway.url}/proxy/agents/acme::bot`)
      await page.getByLabel('All capabilities').fill('reports.read, x.y')
      await page.getByRole('button', { name: 'Try this set alongside the real one' }).focus()
      await page.keyboard.press('Enter')
      await page.getByText('judged alongside the real one from now on').waitFor()
      if (javaScriptEnabled) await page.getByText('It has judged 0 calls').waitFor()
      else await page.getByRole('link', { name: 'What it would have changed' }).click()
      await page.getByRole('button', { name: 'Promote' }).waitFor()
      await page.goto(`${gateway.url}/proxy/tools`)
      await page.getByRole('button', { name: 'Unbind acme::bot from files' }).focus()
      await page.keyboard.press('Enter')
      await page.getByText('Unbound.').waitFor()
      t.equal(await page.getByText('Nobody is bound to a server yet').count(), 1)
      const [files = ''] = (await gateway.admin('GET', '/v1/admin/mcp-resources')).json.map(
        ({ resource_id: id }: { resource_id: string }) => id,
      )
      await gateway.admin('POST', '/v1/admin/mcp-resources/bindings', {
        agent_id: 'acme::bot',
        resource_id: files,
      })
    }
  },
)

await t.test(
  'what is held says beside each token when it was used, loaded behind the page, and a link rehearses the least set',
  { skip },
  async (t) => {
    const { gateway } = await stage(t)
    const page = await (await (await openChromium(t, gateway))()).newPage()
    await signIn(page, gateway)
    let busy = true
    await page.route('**/usage', async (route) => {
      if (!busy) return route.continue()
      busy = false
      return route.fulfill({ status: 503, contentType: 'text/html', body: '<p>busy</p>' })
    })
    await page.goto(`${gateway.url}/proxy/agents/acme::bot`)
    await page.locator('#held', { hasText: 'reports.read granted just now, not used yet' }).waitFor()
    t.notOk(busy, 'what was too busy is asked again')
    await page.locator('#held', { hasText: 'llm.chat used' }).waitFor()
    await page.goto(`${gateway.url}/proxy/agents/acme::bot?set=reports.read`)
    await page.getByRole('button', { name: 'Update: 2 calls of the last 30 days would be refused' }).waitFor()
    await page.getByRole('link', { name: 'Put it into the form' }).click()
    await page.waitForURL(/set=llm\.chat/)
    t.equal(await page.getByLabel('All capabilities').inputValue(), 'llm.chat')
    await page.getByText('none would have been decided differently').waitFor()
  },
)
