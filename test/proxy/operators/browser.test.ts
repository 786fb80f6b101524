import type { Browser, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { startChromium, withoutChromium } from '../../support/chromium.ts'
import { ADMIN_SECRET, type Json, type TestGateway } from '../../support/gateway.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { gatewayOf } from '../../support/oidc/sign-in.ts'
import { operatorNamed } from '../../support/operators.ts'

const ALICE = 'acme::operator::alice'
const BOB = 'acme::operator::bob'
const options = { skip: withoutChromium }

interface Stage {
  readonly gateway: TestGateway
  /** Opens a browser of its own on the first page. */
  readonly open: () => Promise<Page>
}

async function stage(t: Test): Promise<Stage> {
  const provider = await testProvider(t)
  const map = { 'alice@example.com': 'alice', 'bob@example.com': 'bob' }
  const gateway = await gatewayOf(t, provider, { oidc: { map } })
  await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll'])
  await operatorNamed(gateway, 'bob', ['admin.read'])
  const chromium = await startChromium(t)
  return { gateway, open: () => opened(t, chromium, gateway) }
}

async function opened(t: Test, chromium: Browser, { url }: TestGateway): Promise<Page> {
  // A root that no browser has been told of.
  const context = await chromium.newContext({ ignoreHTTPSErrors: true })
  const page = await context.newPage()
  page.on('pageerror', (error) => t.fail(error.message))
  page.on('console', (message) => {
    if (/Content Security Policy/.test(message.text())) t.fail(message.text())
  })
  await page.goto(`${url}/proxy`)
  return page
}

async function signIn(page: Page, login: string): Promise<void> {
  await page.getByRole('link', { name: /^Sign in with / }).click()
  await page.getByLabel('Name').fill(login)
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.getByRole('heading', { name: 'Signed in' }).waitFor()
}

/** Asks the admin API with what this browser holds: no page of ours runs a script that could. */
async function ask(page: Page, url: string, body: object): Promise<{ status: number; operator: string }> {
  const session: Json = await (await page.request.get(`${url}/v1/admin/session`)).json()
  const headers = { 'x-csrf-token': session.csrf }
  const answer = await page.request.post(`${url}/v1/admin/users`, { headers, data: body })
  return { status: answer.status(), operator: session.operator }
}

await t.test(
  'a browser signs in by the identity provider, sees who it is, and signs out',
  options,
  async (t) => {
    const { gateway, open } = await stage(t)
    const page = await open()
    t.equal(new URL(page.url()).pathname, '/proxy/sign-in', 'nobody is signed in')
    await signIn(page, 'alice')
    t.match(await page.textContent('body'), ALICE)
    t.same(await page.evaluate('document.cookie'), '', 'no script reads the session')
    t.equal((await ask(page, gateway.url, { user_name: 'ada' })).status, 201)
    const [row] = await gateway.rows({ action: 'user.created' })
    t.match(row, { principal_id: ALICE, detail: { via: 'oidc' } })

    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.waitForURL((url) => url.pathname !== '/proxy')
    t.notMatch(await page.textContent('body'), ALICE)
    await page.goto(`${gateway.url}/proxy`)
    t.equal(new URL(page.url()).pathname, '/proxy/sign-in')
    await page.goBack()
    t.notMatch(await page.textContent('body'), ALICE, 'the way back shows nothing')
    const [last] = await gateway.rows({ action: 'admin.signed_out' })
    t.match(last, { principal_id: ALICE })
  },
)

await t.test(
  'two browsers are two operators side by side, each as far as its set goes',
  options,
  async (t) => {
    const { gateway, open } = await stage(t)
    const [one, other] = [await open(), await open()]
    await signIn(one, 'alice')
    await signIn(other, 'bob')
    t.same(await ask(one, gateway.url, { user_name: 'ada' }), { status: 201, operator: ALICE })
    t.same(await ask(other, gateway.url, { user_name: 'eve' }), { status: 403, operator: BOB })
    const rows = await gateway.rows({ action: 'user.created', order: 'asc' })
    t.same(
      rows.map(({ principal_id: who, status }) => `${who} ${status}`),
      [`${ALICE} success`, `${BOB} denied`],
    )

    t.equal((await gateway.admin('DELETE', `/v1/admin/operators/${ALICE}`)).status, 204)
    await one.reload()
    t.equal(new URL(one.url()).pathname, '/proxy/sign-in', 'a deactivation ends it at once')
    await other.reload()
    t.match(await other.textContent('body'), BOB, 'and no other')
  },
)

await t.test('by the operator secret, and never by a wrong one', options, async (t) => {
  const { gateway, open } = await stage(t)
  const page = await open()
  const type = async (secret: string): Promise<void> => {
    await page.goto(`${gateway.url}/proxy/sign-in`)
    await page.getByLabel('Operator secret').fill(secret)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading').waitFor()
  }
  await type('a wrong secret of mine'.replaceAll(' ', '-'))
  t.notMatch(await page.textContent('body'), 'Signed in')
  await type(ADMIN_SECRET)
  await page.getByRole('heading', { name: 'Signed in' }).waitFor()
  t.match(await page.textContent('body'), 'the operator secret')
  t.notMatch(page.url(), ADMIN_SECRET)
})
