import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { rolldown } from 'rolldown'
import t, { type Test } from 'tap'
import type { HeardByPage } from '../support/clients/page.ts'
import type { Identity } from '../support/gateway.ts'
import { startEverything } from '../support/mcp/servers.ts'
import { mcpStage, type Stage } from '../support/mcp/stage.ts'
import { openChromium, skipWithoutChromium as skip } from '../support/oidc/chromium.ts'

t.setTimeout(120_000)

/** The official SDKs and {@link HeardByPage}, as one script for a page. */
async function scriptOfPage(): Promise<string> {
  const bundle = await rolldown({
    input: join(import.meta.dirname, '../support/clients/page.ts'),
    platform: 'browser',
    logLevel: 'silent',
  })
  const { output } = await bundle.generate({ format: 'iife' })
  await bundle.close()
  return output[0].code
}

/** A site of somebody else's, whose page has the script. */
async function siteOf(t: Test, script: string): Promise<string> {
  const server = createServer((req, res) => {
    const isScript = req.url === '/page.js'
    res.setHeader('content-type', isScript ? 'text/javascript' : 'text/html')
    res.end(isScript ? script : '<!doctype html><script src="/page.js"></script>')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  // Proven: it listens on a port.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** A page of a site, in a browser whose user has a certificate, or none. */
async function pageOf(t: Test, stage: Stage, site: string, who: Identity | null): Promise<Page> {
  const certificates = who && [{ origin: stage.url, cert: Buffer.from(who.cert), key: Buffer.from(who.key) }]
  const open = await openChromium(t, stage)
  const context = await open(
    certificates ? { clientCertificates: certificates, ignoreHTTPSErrors: true } : {},
  )
  const page = await context.newPage()
  await page.goto(site)
  return page
}

const talk = (page: Page, ...said: readonly unknown[]): Promise<HeardByPage> =>
  page.evaluate(`talk(...${JSON.stringify(said)})`)

/** The result of `fetch` for a page: a status with a header, or that it may read nothing. */
const fetched = (page: Page, url: string, init: object): Promise<unknown> =>
  page.evaluate(
    `fetch(${JSON.stringify(url)}, ${JSON.stringify(init)}).then(
      async (answer) => [answer.status, (await answer.text()).includes('certificate'), answer.headers.has('x-request-id')],
      (error) => error.name)`,
  )

await t.test(
  'a page that is listed talks to MCP by the official SDKs; another one can read nothing',
  { skip },
  async (t) => {
    const script = await scriptOfPage()
    const [listed, other] = await Promise.all([siteOf(t, script), siteOf(t, script)])
    const stage = await mcpStage(t, {
      files: { '60-mcp.yaml': `plugin: mcp\nallowed_origins: [${listed}]\n` },
    })
    const bot = await stage.enroll('bot', ['mcp.tools.list', 'everything.use'])
    const everything = await stage.register('everything', await startEverything(t), {
      required_capability: 'everything.use',
    })
    await stage.bind(bot, everything)
    const [url, door] = [`${stage.url}/v1/mcp`, `${stage.url}/v1/mcp/everything`]
    const slow = { duration: 0.2, steps: 2 }
    const simple = { method: 'POST', credentials: 'include', body: '{}' }

    const page = await pageOf(t, stage, listed, bot)
    for (const [at, kind, prefix] of [
      [url, 'v1', 'everything.'],
      [door, 'v1', ''],
      [url, 'modern', 'everything.'],
    ] as const) {
      const heard = await talk(page, at, kind, `${prefix}trigger-long-running-operation`, slow)
      t.ok(heard.tools.includes(`${prefix}echo`), `${kind} at ${at}`)
      t.match(heard, { answer: /completed/, progress: 2 }, 'and reads the stream of events')
    }
    t.same(await fetched(page, `${stage.url}/v1/models`, { credentials: 'include' }), 'TypeError')

    const stranger = await pageOf(t, stage, other, bot)
    t.same(await fetched(stranger, url, simple), 'TypeError', 'nor by what needs no question')
    await t.rejects(talk(stranger, url, 'v1', 'everything.echo', { message: 'hi' }), /Failed to fetch/)

    // Chromium itself, without anything between it and the gateway.
    const nobody = await pageOf(t, stage, listed, null)
    const json = {
      ...simple,
      headers: { 'content-type': 'application/json', 'mcp-protocol-version': '2025-11-25' },
    }
    t.same(await fetched(nobody, url, json), [401, true, true], 'a refusal says why')
    t.same(await fetched(nobody, url, { credentials: 'include' }), [405, false, true])
    t.same(
      await fetched(nobody, url, { ...json, headers: { ...json.headers, 'x-other': '1' } }),
      'TypeError',
      'a header that no client of MCP sends',
    )
    const strange = await pageOf(t, stage, other, null)
    t.same(await fetched(strange, url, json), 'TypeError')
  },
)
