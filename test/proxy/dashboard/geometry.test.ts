import type { Page } from 'playwright-core'
import t from 'tap'
import { dashboardRoutes } from '../../../proxy/dashboard/routes.ts'
import { geometryFaults } from '../../support/dashboard/geometry.ts'
import { complaintsOf, pagesOf, WORD } from '../../support/dashboard/stage.ts'
import { ADMIN_SECRET, testGateway } from '../../support/gateway.ts'
import { openChromium, skipWithoutChromium as skip } from '../../support/oidc/chromium.ts'

t.setTimeout(120_000)

/** Routes that answer a GET with something else than a page of their own, or before anybody is signed in. */
const NO_PAGES = [
  '/proxy/',
  '/proxy/invited',
  '/proxy/setup',
  '/proxy/setup/organisation',
  '/proxy/setup/agent',
  '/proxy/activity/live',
  '/proxy/capabilities.json',
  '/proxy/proof/evidence',
]

/** The paths that the routes serve with a page, `{…}` for what varies. */
function pagePaths(): readonly string[] {
  const door = { page: () => ({}), form: () => ({}) } as never
  return dashboardRoutes(door, {} as never, {} as never)
    .filter(({ method, path }) => method === 'GET' && !path.startsWith('/proxy/assets/'))
    .map(({ path }) => path)
    .filter((path) => !NO_PAGES.includes(path))
}

await t.test(
  'every page is whole and readable on a phone, a tablet, a desk and a wall, light and dark, the wizard included',
  { skip },
  async (t) => {
    const gateway = await testGateway(t, {
      settings: {
        ...{ MCP_PROXY_ADMIN_SECRET: '', MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
        // With a listener for people there are pages of their accounts.
        ...{ MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:0', MCP_PROXY_PEOPLE_URL: 'https://people.test' },
      },
    })
    const context = await (await openChromium(t, gateway))()
    const complaints = complaintsOf(context)
    const page = await context.newPage()
    const looksRight = async (what: string, of: Page = page): Promise<void> => {
      t.strictSame(await geometryFaults(of), [], what)
    }

    await page.goto(`${gateway.url}/proxy/setup?code=${gateway.setupCode}`)
    await looksRight('the wizard: the secret')
    await page.getByLabel('Operator secret').fill(ADMIN_SECRET)
    await page.getByLabel('Repeat it').fill(ADMIN_SECRET)
    await page.getByRole('button', { name: 'Set it and sign in' }).click()
    await page.getByLabel('Organisation').waitFor()
    await looksRight('the wizard: the organisation')
    await page.getByRole('button', { name: 'Continue' }).click()
    await page.getByLabel('Name').waitFor()
    await looksRight('the wizard: the first agent')
    await page.getByLabel('Name').fill(`first-${WORD.slice(6)}`)
    await page.getByLabel('Capabilities').fill('llm.chat')
    await page.getByRole('button', { name: 'Enroll it' }).click()
    await page.getByText('Waiting for the first call').waitFor()
    await looksRight('the wizard: connect')

    const concrete = await pagesOf(t, gateway)
    for (const path of pagePaths()) {
      const places = concrete[path] ?? (path.includes('{') ? [] : [path])
      if (places.length === 0) t.fail(`${path} is new: say in test/support/dashboard/stage.ts where one is`)
      for (const place of places) {
        t.equal((await page.goto(gateway.url + place))?.status(), 200, place)
        await looksRight(place)
      }
    }
    await page.goto(`${gateway.url}/proxy/operators/acme::operator::${WORD}`)
    await page.getByRole('button', { name: 'Make an invitation' }).click()
    await looksRight('an invitation')
    await page.goto((await page.locator('code', { hasText: '/proxy/invited' }).textContent()) ?? '')
    await looksRight('an invitation, opened')
    await page.getByRole('button', { name: 'Take the certificate' }).click()
    const download = page.getByRole('link', { name: `Download ${WORD}.p12` })
    const [file] = await Promise.all([page.waitForEvent('download'), download.click()])
    t.equal(file.suggestedFilename(), `${WORD}.p12`)
    await looksRight('an invitation, taken')
    t.strictSame(complaints, [])
    await context.clearCookies()
    await page.goto(`${gateway.url}/proxy/sign-in`)
    await looksRight('sign-in')
  },
)
