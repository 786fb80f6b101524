import t from 'tap'
import { FairQueue } from '../../proxy/operators/oidc/fair-line.ts'
import { isNobody, spoiledStage } from '../support/oidc/attempts.ts'
import { Browser, signedIn } from '../support/oidc/sign-in.ts'
import type { Spoiled } from '../support/oidc/spoiled-provider.ts'

const TRANSACTION = '__Host-sallyport-signin'
const MINUTE_MS = 60_000

await t.test('RFC 9207 an answer of another provider, or of nobody says whom, is refused', async (t) => {
  const { gateway, attempt } = await spoiledStage(t)
  const callbacks: Readonly<Record<string, (query: URLSearchParams) => void>> = {
    'no iss': (query) => query.delete('iss'),
    'another iss': (query) => query.set('iss', 'https://login.evil.example'),
    'iss with a slash more': (query) => query.set('iss', `${query.get('iss')}/`),
    'an empty iss': (query) => query.set('iss', ''),
    'two iss': (query) => query.append('iss', 'https://login.evil.example'),
    'no code': (query) => query.delete('code'),
    'a made-up code': (query) => query.set('code', 'made-up'),
    'two codes': (query) => query.append('code', 'another'),
    'an error beside a code': (query) => query.set('error', 'access_denied'),
    'an ID token beside a code': (query) => query.set('id_token', 'a.b.c'),
  }
  for (const [what, callback] of Object.entries(callbacks))
    await isNobody(t, await attempt({ callback }), 403, what)
  const silent: Spoiled = {
    callback: (query) => query.delete('iss'),
    discovery: ({ authorization_response_iss_parameter_supported: _, ...document }) => document,
  }
  t.equal((await attempt(silent)).last.status, 200, 'a provider that does not promise it may leave it out')
  const lying: Spoiled = { ...silent, callback: (query) => query.set('iss', 'https://login.evil.example') }
  await isNobody(t, await attempt(lying), 403, 'one that says it all the same must say the truth')
  t.equal((await gateway.rows({ action: 'admin.sign_in' })).length, 1)
})

await t.test('an answer belongs to the browser that has asked, and to its latest question', async (t) => {
  const { provider, gateway } = await spoiledStage(t)
  // Codes are not what protects here.
  provider.spoiled = { careless: true }
  const [alice, mallory] = [new Browser(gateway), new Browser(gateway)]
  const hers = await alice.atProvider(await alice.start(), 'alice')
  const his = await mallory.atProvider(await mallory.start(), 'mallory')

  const notBegun = async (browser: Browser, url: URL, what: string): Promise<void> => {
    const last = await browser.callback(url)
    await isNobody(t, { browser, last }, 400, what)
    t.match(last.text, 'href="/proxy/sign-in"', 'where to begin again')
  }
  await notBegun(mallory, hers, 'her answer in his browser')
  await notBegun(alice, his, 'his answer in her browser: nobody is signed in as somebody else')
  await notBegun(new Browser(gateway), hers, 'in a browser that has begun nothing')
  for (const [what, change] of Object.entries({
    'no state': (query: URLSearchParams) => query.delete('state'),
    'an empty state': (query: URLSearchParams) => query.set('state', ''),
    'two states': (query: URLSearchParams) => query.append('state', query.get('state') ?? ''),
    'a longer state': (query: URLSearchParams) => query.set('state', `${query.get('state')}x`),
  })) {
    const url = new URL(hers)
    change(url.searchParams)
    await notBegun(alice, url, what)
  }
  const sealed = alice.jar.cookies.get(TRANSACTION) ?? ''
  const flipped = `${sealed.slice(0, -6)}${sealed.at(-6) === 'A' ? 'B' : 'A'}${sealed.slice(-5)}`
  const made = Buffer.from(JSON.stringify({ state: hers.searchParams.get('state') })).toString('base64url')
  for (const cookie of [flipped, made, '', 'A'.repeat(5000), `${sealed}; ${TRANSACTION}=${sealed}`]) {
    alice.jar.cookies.set(TRANSACTION, cookie)
    await notBegun(alice, hers, `a cookie that nobody has sealed: ${cookie.slice(0, 20)}`)
  }
  alice.jar.cookies.set(TRANSACTION, sealed)
  await alice.start()
  await notBegun(alice, hers, 'she has begun anew')
  alice.jar.cookies.set(TRANSACTION, sealed)
  t.equal((await alice.callback(hers)).status, 200, 'her own answer in her own browser')
  t.equal((await gateway.rows({ action: 'admin.sign_in' })).length, 1)
})

await t.test('a code is redeemed once, and by whom it was given to', async (t) => {
  const { provider, gateway, pass } = await spoiledStage(t)
  provider.spoiled = { careless: true }
  const browser = new Browser(gateway)
  const back = await browser.atProvider(await browser.start(), 'alice')
  const sealed = browser.jar.cookies.get(TRANSACTION) ?? ''
  t.equal((await browser.callback(back)).status, 200)
  const thief = new Browser(gateway)
  thief.jar.cookies.set(TRANSACTION, sealed)
  const asked = provider.asked.get('/token')
  const replayed = { browser: thief, last: await thief.callback(back) }
  await isNobody(t, replayed, 400, 'replayed, though the provider takes it twice')
  t.equal(provider.asked.get('/token'), asked, 'nor is it shown to the provider')

  for (const careless of [false, true]) {
    provider.spoiled = { careless }
    const victim = new Browser(gateway)
    const stolen = await victim.atProvider(await victim.start(), 'alice')
    const injector = new Browser(gateway)
    const own = await injector.atProvider(await injector.start(), 'mallory')
    own.searchParams.set('code', stolen.searchParams.get('code') ?? '')
    const injected = { browser: injector, last: await injector.callback(own) }
    await isNobody(
      t,
      injected,
      403,
      careless ? 'the nonce is another’s' : 'RFC 7636 the verifier is another’s',
    )
    pass(MINUTE_MS)
  }
  t.equal((await gateway.rows({ action: 'admin.sign_in' })).length, 1)
})

await t.test('of two answers at the same time one begins a session', async (t) => {
  const { provider, gateway } = await spoiledStage(t)
  provider.spoiled = { careless: true }
  const browser = new Browser(gateway)
  const back = await browser.atProvider(await browser.start(), 'alice')
  const answers = await Promise.all([1, 2, 3, 4].map(() => browser.callback(back)))
  const statuses = answers.map(({ status }) => status)
  t.same(
    statuses.toSorted((one, other) => one - other),
    [200, 400, 400, 400],
  )
  t.equal((await gateway.rows({ action: 'admin.sign_in' })).length, 1)
})

await t.test('a sign-in that took longer than ten minutes is no more', async (t) => {
  let at = Date.now()
  const { provider, gateway } = await spoiledStage(t, { clock: () => at })
  // As the gateway's clock goes.
  provider.spoiled = { claims: (claims) => ({ ...claims, iat: at / 1000, exp: at / 1000 + 60 }) }
  const [quick, browser] = [new Browser(gateway), new Browser(gateway)]
  const quickly = await quick.atProvider(await quick.start(), 'alice')
  const back = await browser.atProvider(await browser.start(), 'alice')
  at += 9 * MINUTE_MS
  t.equal((await quick.callback(quickly)).status, 200, 'in time')
  at += MINUTE_MS
  await isNobody(t, { browser, last: await browser.callback(back) }, 400, 'too late')
})

await t.test(
  'H9 wrong codes are counted by sign-in: after ten it is over, and nobody else waits',
  async (t) => {
    const { provider, gateway } = await spoiledStage(t)
    const [mallory, alice] = [new Browser(gateway), new Browser(gateway)]
    const hers = await alice.atProvider(await alice.start(), 'alice')
    const back = await mallory.atProvider(await mallory.start(), 'mallory')
    const good = back.searchParams.get('code') ?? ''
    back.searchParams.set('code', 'a guess')
    for (let guess = 0; guess < 10; guess += 1) t.equal((await mallory.callback(back)).status, 403)
    const asked = provider.asked.get('/token')
    back.searchParams.set('code', good)
    await isNobody(
      t,
      { browser: mallory, last: await mallory.callback(back) },
      400,
      'the eleventh, a good one',
    )
    t.equal(provider.asked.get('/token'), asked, 'and the provider is not asked')
    t.equal((await alice.callback(hers)).status, 200, 'of the same address')

    // Nor by beginning again and again: each of these is one wrong code of a sign-in of its own.
    provider.spoiled = { callback: (query) => query.set('code', 'a guess') }
    for (let guess = 0; guess < 11; guess += 1)
      t.equal((await new Browser(gateway).signIn('alice')).status, 403)
    provider.spoiled = {}
    t.ok((await signedIn(gateway, 'alice')).session)
  },
)

await t.test('H9 a flood of codes waits for itself: another sender has its turn next', async (t) => {
  const line = new FairQueue()
  const done: string[] = []
  const ends: (() => void)[] = []
  const one = (sender: string): Promise<void> =>
    line.run(sender, async () => {
      await new Promise<void>((resolve) => ends.push(resolve))
      done.push(sender)
    })
  const flood = Array.from({ length: 48 }, () => one('mallory'))
  await one('mallory').then(
    () => t.fail('one more is let in'),
    (error: unknown) =>
      t.match(error, { reason: 'sign_in_unavailable' }, 'beyond what one sender may have waiting'),
  )
  const honest = one('alice')
  t.equal(ends.length, 32, 'at once')
  ends[0]?.()
  await flood[0]
  ends[1]?.()
  await flood[1]
  t.equal(ends.length, 34)
  ends[33]?.()
  await honest
  t.same(done, ['mallory', 'mallory', 'alice'], 'after one of the flood, not after all')
  for (let next = 2; next < 50; next += 1) {
    ends[next]?.()
    await new Promise((resolve) => setImmediate(resolve))
  }
  await Promise.all(flood)
})
