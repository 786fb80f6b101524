import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { ADMIN_SECRET, type TestGateway, testGateway } from '../../support/gateway.ts'
import { openChromium, skipWithoutChromium as skip } from '../../support/oidc/chromium.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(240_000)

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
const AXE = readFileSync(join(import.meta.dirname, '../../../node_modules/axe-core/axe.min.js'), 'utf8')
const NOON = Date.UTC(2026, 10, 20, 12)
const HOUR_MS = 3_600_000

async function signIn(page: Page, { url }: Pick<TestGateway, 'url'>): Promise<void> {
  await page.goto(`${url}/proxy/activity`)
  await page.getByLabel('Operator secret').fill(ADMIN_SECRET)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.waitForURL(`${url}/proxy/activity`)
}

/** A gateway with calls at 10:10, 11:10 and 12:10, the last one refused, and a clock that somebody moves. */
async function stage(t: Test) {
  const clock = { at: NOON - 2 * HOUR_MS + 600_000 }
  const gateway = await testGateway(t, { clock: () => clock.at })
  const [bot, none] = [await gateway.enroll('bot', ['llm.chat']), await gateway.enroll('none', [])]
  const chat = (who: typeof bot) => gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  for (const who of [bot, bot, none]) {
    await chat(who)
    clock.at += HOUR_MS
  }
  clock.at -= HOUR_MS / 2
  return { gateway, clock, bot, none, chat, open: await openChromium(t, gateway) }
}

/** The rows that are higher than one line. Runs in the page. */
const TALL = `[...document.querySelectorAll('#calls tbody tr')].filter(
  (row) => row.getBoundingClientRect().height > 2.6 * parseFloat(getComputedStyle(document.documentElement).fontSize),
).map((row) => row.textContent)`

const CALLS = '#calls a.row'
const shown = (page: Page): Promise<number> => page.locator(CALLS, { hasText: /model call/i }).count()
const bar = (page: Page, from: string) => page.locator(`#chart a[data-since="2026-11-20T${from}:00.000Z"]`)

/** Waits until the page shows so many calls. */
const shows = async (t: Test, page: Page, count: number, says: string): Promise<void> => {
  const seen = await eventually(
    () => shown(page).catch(() => -1),
    (is) => is === count,
  )
  t.equal(seen, count, says)
}

await t.test(
  'new calls appear while one follows, not while one pauses, and the button says which it is',
  { skip },
  async (t) => {
    const { gateway, clock, bot, chat, open } = await stage(t)
    const page = await (await open()).newPage()
    const errors: string[] = []
    page.on('pageerror', (error) => errors.push(String(error)))
    await signIn(page, gateway)
    await shows(t, page, 3, 'as it was')
    t.strictSame(await page.evaluate(TALL), [], 'at 1,280 px each call is one line')
    const [follow, pause] = [
      page.getByRole('button', { name: 'Follow' }),
      page.getByRole('button', { name: 'Pause' }),
    ]
    t.equal(await follow.getAttribute('aria-pressed'), 'false')
    await follow.click()
    await page.getByText('New calls appear as they come.').waitFor()
    t.equal(await pause.getAttribute('aria-pressed'), 'true')
    await page.locator(CALLS).first().focus()
    const focused = await page.evaluate('document.activeElement.href')
    clock.at += 60_000
    await chat(bot)
    await shows(t, page, 4, 'it came by itself')
    t.equal(
      await page.evaluate('document.activeElement.href'),
      focused,
      'and the keyboard stays where it was',
    )
    t.match(await page.locator('.totals').textContent(), 'allowed 3')
    await pause.click()
    await page.getByText('Paused.').waitFor()
    await chat(bot)
    // By then one that follows has been told.
    const other = await (await open()).newPage()
    await signIn(other, gateway)
    await other.getByRole('button', { name: 'Follow' }).click()
    await chat(bot)
    await shows(t, other, 6, 'somebody else sees all of them')
    t.equal(await shown(page), 4, 'who has paused does not')
    await follow.click()
    await shows(t, page, 6, 'and sees what has come meanwhile as soon as it follows again')
    // Of one operator four pages follow: each that pauses has left its place, and `other` has one.
    for (let turn = 0; turn < 4; turn += 1) {
      await pause.click()
      await page.getByText('Paused.').waitFor()
      await follow.click()
      await page.getByText('New calls appear as they come.').waitFor()
    }
    t.same(errors, [])
  },
)

await t.test('a session that has ended ends the following, and the page says why', { skip }, async (t) => {
  const { gateway, open } = await stage(t)
  const page = await (await open()).newPage()
  await signIn(page, gateway)
  await page.getByRole('button', { name: 'Follow' }).click()
  await page.getByText('New calls appear as they come.').waitFor()
  const { sessions } = (await gateway.admin('GET', '/v1/admin/sessions')).json
  await gateway.admin('DELETE', `/v1/admin/sessions/${sessions[0].id}`)
  await page.getByText('Not following: sign in again.').waitFor()
  t.equal(await page.getByRole('button', { name: 'Follow' }).getAttribute('aria-pressed'), 'false')
})

await t.test('a range of bars is chosen by dragging, by keys, or as one link', { skip }, async (t) => {
  const { gateway, open } = await stage(t)
  const page = await (await open()).newPage()
  await signIn(page, gateway)
  const middle = async (from: string) => {
    const { x, y, width, height } = (await bar(page, from).locator('.hit').boundingBox()) ?? {
      ...{ x: 0, y: 0, width: 0, height: 0 },
    }
    return [x + width / 2, y + height / 2] as const
  }
  await page.mouse.move(...(await middle('10:00')))
  await page.mouse.down()
  await page.mouse.move(...(await middle('11:30')), { steps: 5 })
  t.equal(await page.locator('#chart a.chosen').count(), 4)
  await page.mouse.up()
  const range = (since: string, until: string): RegExp =>
    new RegExp(`since=2026-11-20T${since}%3A00.000Z&until=2026-11-20T${until}%3A00.000Z`)
  await page.waitForURL(range('10%3A00', '12%3A00'))
  await shows(t, page, 2, 'by dragging')

  await page.goto(`${gateway.url}/proxy/activity`)
  await page.getByRole('link', { name: '30d', exact: true }).focus()
  await page.keyboard.press('Tab')
  await page.keyboard.press('Tab')
  const focused = (): Promise<unknown> => page.evaluate('document.activeElement.dataset.since')
  t.equal(await focused(), '2026-11-20T12:30:00.000Z', 'the last bar: one stop for all')
  await page.keyboard.press('ArrowLeft')
  t.equal(await focused(), '2026-11-20T12:00:00.000Z')
  for (const _ of [1, 2]) await page.keyboard.press('Shift+ArrowLeft')
  t.match(await page.locator('#range').textContent(), '3 bars from 2026-11-20T11:00')
  await page.keyboard.press('Escape')
  t.equal(await page.locator('#chart a.chosen').count(), 0)
  for (const _ of [1, 2]) await page.keyboard.press('Shift+ArrowRight')
  await page.keyboard.press('Enter')
  await page.waitForURL(range('11%3A00', '12%3A30'))
  await shows(t, page, 2, 'by keys')

  await page.goto(`${gateway.url}/proxy/activity`)
  await bar(page, '12:00').click()
  await page.waitForURL(range('12%3A00', '12%3A30'))
  await shows(t, page, 1, 'one bar')
  t.equal(await page.getByRole('button', { name: 'Follow' }).count(), 0, 'nothing new comes there')
})

await t.test('without scripts bars are links and the page is reloaded by one', { skip }, async (t) => {
  const { gateway, bot, chat, open } = await stage(t)
  const page = await (await open({ javaScriptEnabled: false })).newPage()
  await signIn(page, gateway)
  t.equal(await page.getByRole('button', { name: 'Follow' }).count(), 0)
  await chat(bot)
  await page.getByRole('link', { name: 'Reload' }).click()
  await page.getByRole('link', { name: /12:30 to 13:00: denied 0, allowed 1/ }).waitFor()
  await page.getByRole('link', { name: /11:00 to 11:30: denied 0, allowed 1/ }).focus()
  await page.keyboard.press('Enter')
  await page.waitForURL(/since=2026-11-20T11/)
  t.equal(await page.locator(CALLS).count(), 1)
})

await t.test(
  'the chart is readable on a phone and a desk, light and dark: axe finds nothing serious',
  { skip },
  async (t) => {
    const { gateway, open } = await stage(t)
    const page = await (await open()).newPage()
    await signIn(page, gateway)
    await page.getByRole('button', { name: 'Follow' }).click()
    for (const path of ['/proxy/activity', '/proxy/activity?since=yesterday&window=7d&principal=x'])
      for (const width of [375, 1280])
        for (const colorScheme of ['light', 'dark'] as const) {
          await page.setViewportSize({ width, height: 800 })
          await page.emulateMedia({ colorScheme })
          await page.goto(gateway.url + path)
          t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0, `${width}`)
          await page.evaluate(AXE)
          const serious = await page.evaluate(
            `axe.run().then(({ violations }) => violations
              .filter(({ impact }) => impact === 'serious' || impact === 'critical')
              .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).join(' ')))`,
          )
          t.same(serious, [], `${path}, ${width}, ${colorScheme}`)
        }
  },
)
