import type { Test } from 'tap'
import type { Answered, TestGateway } from '../gateway.ts'
import { Browser, gatewayOf, type SignInOptions } from './sign-in.ts'
import { type Spoiled, type SpoiledProvider, spoiledProvider } from './spoiled-provider.ts'

const HOUR_MS = 3_600_000

/** A browser, and the last page that it has seen. */
interface Attempt {
  readonly browser: Browser
  readonly last: Answered
}

interface Stage {
  readonly provider: SpoiledProvider
  readonly gateway: TestGateway
  /** Lets time pass, so that no answer of the provider is kept and nobody waits. ms. */
  readonly pass: (ms: number) => void
  /** An hour later: signs alice in while something is spoiled, or nothing. */
  readonly attempt: (spoiled?: Spoiled) => Promise<Attempt>
}

/** A gateway on which alice is a granter, by a provider that can be spoiled. */
export async function spoiledStage(t: Test, options: SignInOptions = {}): Promise<Stage> {
  let now = 0
  const provider = await spoiledProvider(t)
  const oidc = { map: { 'alice@example.com': 'granter' }, ...options.oidc }
  const gateway = await gatewayOf(t, provider, { ...options, oidc, monotonic: () => now })
  const pass = (ms: number): void => {
    now += ms
  }
  return {
    provider,
    gateway,
    pass,
    attempt: async (spoiled = {}) => {
      pass(HOUR_MS)
      provider.spoiled = spoiled
      const browser = new Browser(gateway)
      const last = await browser.signIn('alice')
      provider.spoiled = {}
      return { browser, last }
    },
  }
}

/** Nobody is signed in, and a page says so. */
export async function isNobody(t: Test, { browser, last }: Attempt, status: number, what: string) {
  t.equal(last.status, status, what)
  t.match(last.headers['content-type'], 'text/html', what)
  t.equal(browser.jar.session, undefined, what)
  t.equal((await browser.jar.ask('GET', '/v1/admin/session')).status, 403, what)
}
