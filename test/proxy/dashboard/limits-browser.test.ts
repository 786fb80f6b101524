import t from 'tap'
import { signIn } from '../../support/dashboard/stage.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { openChromium, skipWithoutChromium as skip } from '../../support/oidc/chromium.ts'

t.setTimeout(120_000)

// A tenth of a dollar a token: a call of 100 tokens costs ten dollars.
const PRICES = `plugin: prices
table: none
models:
  - { match: "openai/*", input: 100000, output: 100000 }
`

t.test(
  'team red gets 25 USD a month: the operator sees whom it would have refused, then its alert, and who spent what',
  { skip },
  async (t) => {
    const gateway = await testGateway(t, { files: { '55-prices.yaml': PRICES } })
    gateway.upstream.answer = (response) => {
      const usage = { prompt_tokens: 100, completion_tokens: 0 }
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ model: CHAT.model, choices: [], usage }))
    }
    const bot = await gateway.enroll('bot', ['llm.chat', 'team.red'])
    const body = { ...CHAT, max_tokens: 1 }
    const call = async () => (await gateway.call(bot, 'POST', '/v1/chat/completions', { body })).status
    t.same([await call(), await call(), await call()], [200, 200, 200])

    const page = await (await (await openChromium(t, gateway))()).newPage()
    await signIn(page, gateway)
    await page.getByRole('link', { name: 'Limits', exact: true }).click()
    await page.getByLabel('Name', { exact: true }).fill('red-month')
    await page.getByRole('textbox', { name: 'Amount' }).fill('25')
    await page.getByLabel('Of principals that hold').fill('team.red')
    await page.getByRole('button', { name: 'Make the limit' }).click()
    await page
      .getByText(/red-month: in the last 30 days this would have refused 1 call of 1 principal/)
      .waitFor()
    await page.getByRole('button', { name: 'Make the limit: 1 call of the last 30 days would be' }).click()
    await page.getByText('0 of 25.00 USD this month').waitFor()

    t.same([await call(), await call()], [200, 200])
    await page.goto(`${gateway.url}/proxy`)
    await page.getByText(/20\.00 of 25\.00 USD this month/).waitFor()
    t.equal(
      await page.getByRole('link', { name: 'red-month' }).count(),
      1,
      'from 80 % on it asks for attention',
    )
    t.same(
      [await call(), await call()],
      [200, 429],
      'what is under way passes the amount, and the next is refused',
    )
    await page.goto(`${gateway.url}/proxy/agents/${bot.id}`)
    await page.locator('#limits').getByText('30.00 of 25.00 USD this month').waitFor()

    // The costs of rows are added up within two seconds.
    await page.goto(`${gateway.url}/proxy/costs`)
    while (!(await page.getByText('60.00 USD for 6 calls').count())) await page.reload()
    const line = page.locator('section', { hasText: 'By principal' }).locator('tr', { hasText: 'bot' })
    t.match(await line.textContent(), /bot.*60\.00 USD/)
  },
)
