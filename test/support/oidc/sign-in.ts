import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Answered, type TestGateway, type TestOptions, testGateway } from '../gateway.ts'
import { Jar } from './jar.ts'
import { CLIENT_ID, CLIENT_SECRET } from './provider.ts'

/** What the operators' file of a test says of sign-in; absent members are those of the product. */
export interface SignInOptions extends TestOptions {
  /** Added to issuer and client. */
  readonly oidc?: Readonly<Record<string, unknown>>
  readonly session?: Readonly<Record<string, unknown>>
}

/** The operators' file that names an identity provider. */
export const operatorsFile = (
  issuer: string,
  oidc: Readonly<Record<string, unknown>> = {},
  session: Readonly<Record<string, unknown>> = {},
): string =>
  JSON.stringify({
    plugin: 'operators',
    oidc: { issuer, client_id: CLIENT_ID, client_secret: CLIENT_SECRET, map: {}, ...oidc },
    session,
  })

/** A provider that a gateway can be a client of. */
interface Registering {
  readonly issuer: string
  readonly register: (gateway: TestGateway) => Promise<void>
}

/** A whole gateway whose operators sign in by that provider. */
export async function gatewayOf(
  t: Test,
  provider: Registering,
  { oidc, session, files, ...options }: SignInOptions = {},
): Promise<TestGateway> {
  const named = { '70-operators.yaml': operatorsFile(provider.issuer, oidc, session) }
  const gateway = await testGateway(t, { ...options, files: { ...named, ...files } })
  await provider.register(gateway)
  return gateway
}

/** Has a gateway read another operators' file. */
export async function reconfigure(
  { pluginsDir, reload }: Pick<TestGateway, 'pluginsDir' | 'reload'>,
  text: string,
): Promise<void> {
  await writeFile(join(pluginsDir, '70-operators.yaml'), text)
  if (!(await reload())) throw new Error('the operators’ file is refused')
}

/** Navigations of another site: what a browser says of a link, and of a redirect that began there. */
export const FROM_ELSEWHERE = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }

const MOST_STEPS = 12

/**
 * A browser without a window that goes to the identity provider and comes back: one jar for the gateway, one for the
 * provider, and no cookie of one is ever sent to the other.
 */
export class Browser {
  readonly jar: Jar
  readonly #gateway: TestGateway
  readonly #atProvider = new Map<string, string>()

  constructor(gateway: TestGateway) {
    this.#gateway = gateway
    this.jar = new Jar(gateway)
  }

  /** Follows the link of the sign-in page. Returns where at the provider it leads. */
  async start(query = ''): Promise<URL> {
    const { status, headers, text } = await this.jar.ask('GET', `/proxy/oidc/start${query}`)
    if (status !== 303) throw new Error(`sign-in does not begin: ${status} ${text}`)
    return new URL(String(headers.location))
  }

  /** Goes through the provider's pages as somebody. Returns the address at the gateway that they lead to. */
  async atProvider(from: URL, login: string): Promise<URL> {
    const own = new URL(this.#gateway.url)
    let url = from
    for (let step = 0; step < MOST_STEPS; step += 1) {
      if (url.origin === own.origin) return url
      const answer = await this.#visit(url, 'GET')
      const next = answer.headers.get('location') ?? (await this.#typed(url, login)).headers.get('location')
      if (next === null) throw new Error(`${url.pathname} leads nowhere: ${answer.status}`)
      url = new URL(next, url)
    }
    throw new Error('the provider never leads back')
  }

  /** Comes back to the gateway, as a browser does that another site has sent. */
  callback(url: URL): Promise<Answered> {
    return this.jar.ask('GET', url.pathname + url.search, FROM_ELSEWHERE)
  }

  /** Signs in from the first page to the last. Returns the last one, whatever it is. */
  async signIn(login: string, query = ''): Promise<Answered> {
    return this.callback(await this.atProvider(await this.start(query), login))
  }

  /** Signs out on the provider's own page. Resolves when the provider has told its clients. */
  async endAtProvider(page: URL): Promise<void> {
    const asked = await (await this.#visit(page, 'GET')).text()
    const [, action = ''] = /action="([^"]+)"/.exec(asked) ?? []
    const [, xsrf = ''] = /name="xsrf" value="([^"]+)"/.exec(asked) ?? []
    const fields = new URLSearchParams({ xsrf, logout: 'yes' })
    const { status } = await this.#visit(new URL(action), 'POST', fields)
    if (status >= 400) throw new Error(`the provider does not sign out: ${status}`)
  }

  #typed(url: URL, login: string): Promise<Response> {
    return this.#visit(url, 'POST', new URLSearchParams({ login }))
  }

  async #visit(url: URL, method: string, body?: URLSearchParams): Promise<Response> {
    const cookie = [...this.#atProvider].map(([name, value]) => `${name}=${value}`).join('; ')
    const answer = await fetch(url, { method, redirect: 'manual', headers: { cookie }, body: body ?? null })
    for (const line of answer.headers.getSetCookie()) {
      const [pair = ''] = line.split(';')
      const at = pair.indexOf('=')
      if (at + 1 === pair.length) this.#atProvider.delete(pair.slice(0, at))
      else this.#atProvider.set(pair.slice(0, at), pair.slice(at + 1))
    }
    return answer
  }
}

/** A browser in which somebody is signed in. */
export async function signedIn(gateway: TestGateway, login: string): Promise<Jar> {
  const browser = new Browser(gateway)
  const { status, text } = await browser.signIn(login)
  if (status !== 200 || browser.jar.session === undefined) throw new Error(`${status} ${text}`)
  return browser.jar
}
