import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { ADMIN_SECRET, type TestGateway, testGateway } from '../../support/gateway.ts'
import { openChromium, skipWithoutChromium as skip } from '../../support/oidc/chromium.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { gatewayOf } from '../../support/oidc/sign-in.ts'
import { operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(120_000)

const ALICE = 'acme::operator::alice'
const BOB = 'acme::operator::bob'
const MAP = { 'alice@example.com': 'alice', 'bob@example.com': 'bob' }

async function stage(t: Test): Promise<{ gateway: TestGateway; issuer: string }> {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { oidc: { map: MAP } })
  await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll'])
  await operatorNamed(gateway, 'bob', ['admin.read', 'admin.audit'])
  return { gateway, issuer: provider.issuer }
}

/** Signs somebody in as a person does: by what the pages offer. */
async function signIn(page: Page, { url }: Pick<TestGateway, 'url'>, login: string): Promise<void> {
  await page.goto(`${url}/proxy`)
  await page.getByRole('link', { name: /^Sign in with / }).click()
  await page.getByLabel('Name').fill(login)
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.waitForURL(`${url}/proxy`)
}

/** The operator whom the page names. */
const named = async (page: Page): Promise<string> => (await page.locator('.who').textContent()) ?? ''

/** Goes back as far as there is anything, and tells all that was shown. */
async function shownOnTheWayBack(page: Page): Promise<string> {
  let shown = ''
  for (let step = 0; step < 6; step += 1) {
    await page.goBack().catch(() => null)
    shown += await eventually(
      () => page.content().catch(() => null),
      (text) => text !== null,
    )
  }
  return shown
}

await t.test(
  'a person signs in by the provider, sees its name, signs out, and going back shows nothing',
  { skip },
  async (t) => {
    const { gateway, issuer } = await stage(t)
    const context = await (await openChromium(t, gateway))()
    const page = await context.newPage()
    const complaints: string[] = []
    page.on('console', (message) => {
      if (/policy/i.test(message.text())) complaints.push(message.text())
    })
    await signIn(page, gateway, 'alice')
    t.equal(await named(page), ALICE)
    t.match(await page.content(), 'the identity provider (pwd, otp)')
    t.same(complaints, [], 'nothing of our own pages is refused by their own policy')

    const cookies = await context.cookies(gateway.url)
    t.match(
      cookies.find(({ name }) => name === '__Host-sallyport'),
      { httpOnly: true, secure: true, sameSite: 'Strict', path: '/', expires: -1 },
    )
    t.equal(await page.evaluate('document.cookie'), '', 'no script reads it')

    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.waitForURL(`${issuer}/session/end**`)
    t.same(await context.cookies(gateway.url), [], 'the browser has forgotten all of it')
    const shown = await shownOnTheWayBack(page)
    t.match(shown, 'Sign in with', 'where one signs in, instead')
    t.notMatch(shown, ALICE)
    await page.goto(`${gateway.url}/proxy`)
    t.equal(page.url(), `${gateway.url}/proxy/sign-in`)
    t.equal((await gateway.rows({ action: 'admin.signed_out' })).length, 1)
  },
)

await t.test('by the secret too', { skip }, async (t) => {
  const gateway = await testGateway(t)
  const context = await (await openChromium(t, gateway))()
  const page = await context.newPage()
  await page.goto(`${gateway.url}/proxy`)
  await page.getByLabel('Operator secret').fill('a wrong secret')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByText('This is not the operator secret.').waitFor()
  await page.getByLabel('Operator secret').fill(ADMIN_SECRET)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.waitForURL(`${gateway.url}/proxy`)
  t.equal(await named(page), 'admin')
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.waitForURL(`${gateway.url}/proxy/sign-in`)
  const shown = await shownOnTheWayBack(page)
  t.notMatch(shown, 'admin.operators', 'nothing of what admin holds')
  t.notMatch(shown, ADMIN_SECRET)
  await page.goto(`${gateway.url}/proxy`)
  t.equal(page.url(), `${gateway.url}/proxy/sign-in`)
})

await t.test('two browsers are two operators side by side', { skip }, async (t) => {
  const { gateway } = await stage(t)
  const opened = await openChromium(t, gateway)
  const [one, other] = [await (await opened()).newPage(), await (await opened()).newPage()]
  await signIn(one, gateway, 'alice')
  await signIn(other, gateway, 'bob')
  await one.reload()
  t.same([await named(one), await named(other)], [ALICE, BOB])
  await other.getByRole('button', { name: 'Sign out' }).click()
  await other.waitForURL('**/session/end**')
  await one.reload()
  t.equal(await named(one), ALICE, 'his sign-out is not hers')
})

/** A site of somebody else's, with one page. */
async function siteOf(t: Test, body: string): Promise<string> {
  const server = createServer((_, res) =>
    res.writeHead(200, { 'content-type': 'text/html' }).end(`<!doctype html>${body}`),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

await t.test(
  'a link of another site leads to the page, and a form or frame of it to nothing',
  { skip },
  async (t) => {
    const { gateway } = await stage(t)
    const { url } = gateway
    const context = await (await openChromium(t, gateway))()
    const page = await context.newPage()
    await signIn(page, gateway, 'alice')
    const site = await siteOf(
      t,
      `<a href="${url}/proxy">look</a><iframe src="${url}/proxy"></iframe>
<form method="post" action="${url}/proxy/sign-out"><button>out</button></form>
<form method="post" action="${url}/proxy/sign-in"><input name="secret" value="${ADMIN_SECRET}"><button>in</button></form>
<form method="post" enctype="text/plain" action="${url}/v1/admin/users"><input name='{"user_name":"ada","x":"' value='"}'><button>make</button></form>`,
    )
    await page.goto(site)
    t.notMatch(
      await page
        .frames()[1]
        ?.content()
        .catch(() => ''),
      ALICE,
    )
    await page.getByRole('link', { name: 'look' }).click()
    await page.getByText(ALICE).waitFor()
    t.equal(page.url(), `${url}/proxy`)
    for (const button of ['out', 'in', 'make']) {
      await page.goto(site)
      const answered = page.waitForResponse((answer) => answer.request().method() === 'POST')
      await page.getByRole('button', { name: button, exact: true }).click()
      t.equal((await answered).status(), 403, button)
      await page.goto(`${url}/proxy`)
      t.equal(await named(page), ALICE, `${button}: she is who she was`)
    }
    t.same(await gateway.rows({ action: 'user.created', status: 'success' }), [])
    t.same(await gateway.rows({ action: 'admin.signed_out' }), [])
    t.equal((await gateway.rows({ action: 'admin.sign_in' })).length, 1)
  },
)
