import { createHash, randomBytes } from 'node:crypto'
import { PEOPLE_URL, type PeopleGateway } from './door.ts'

/** An answer of the listener for people, or of a page on the way. */
export interface PersonAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

const MAX_STEPS = 20

/** A person with a browser without a window: it keeps cookies by origin and path, and follows what it is sent. */
export class Person {
  readonly #cookies = new Map<string, { readonly value: string; readonly path: string }>()
  readonly #fetch: PeopleGateway['fetch']
  readonly #login: string

  constructor({ fetch }: Pick<PeopleGateway, 'fetch'>, login: string) {
    this.#fetch = fetch
    this.#login = login
  }

  async visit(url: URL, body?: Readonly<Record<string, string>>): Promise<PersonAnswer> {
    const answer = await this.#fetch(url, {
      method: body ? 'POST' : 'GET',
      redirect: 'manual',
      headers: {
        accept: 'text/html',
        cookie: this.#cookiesFor(url),
        ...(body && { 'content-type': 'application/x-www-form-urlencoded', origin: url.origin }),
      },
      ...(body && { body: new URLSearchParams(body).toString() }),
    })
    for (const line of answer.headers.getSetCookie()) this.#keep(url, line)
    return { status: answer.status, headers: answer.headers, text: await answer.text() }
  }

  /**
   * Goes from an address until another site than the gateway's and the identity provider's is named, or a page of
   * the gateway asks something.
   */
  async follow(
    from: URL,
    provider: string,
  ): Promise<{ readonly url: URL; readonly answer: PersonAnswer | null }> {
    let url = from
    for (let step = 0; step < MAX_STEPS; step += 1) {
      if (url.origin !== PEOPLE_URL && url.origin !== provider) return { url, answer: null }
      const isTypedIn = url.origin === provider && url.pathname.startsWith('/interaction/')
      const answer = await this.visit(url, isTypedIn ? { login: this.#login } : undefined)
      const next =
        answer.headers.get('location') ??
        /http-equiv="refresh" content="0;url=([^"]+)"/.exec(answer.text)?.[1]
      if (!next) return { url, answer }
      url = new URL(next.replaceAll('&amp;', '&'), url)
    }
    throw new Error('the way never ends')
  }

  /** Signs in, and answers the question of the consent page. Returns where the program's own site is entered. */
  async allow(authorize: URL, provider: string, answer: 'allow' | 'deny' = 'allow'): Promise<URL> {
    return this.answer(await this.follow(authorize, provider), provider, answer)
  }

  /** Answers the question of a consent page that the person has before them. */
  async answer(
    { url, answer: asked }: Awaited<ReturnType<Person['follow']>>,
    provider: string,
    answer: 'allow' | 'deny' = 'allow',
  ): Promise<URL> {
    const token = /name="token" value="([^"]+)"/.exec(asked?.text ?? '')?.[1]
    if (!token) throw new Error(`no consent is asked for at ${url.href}: ${asked?.status} ${asked?.text}`)
    const answered = await this.visit(url, { token, answer })
    const next = /content="0;url=([^"]+)"/.exec(answered.text)?.[1]
    if (!next) throw new Error(`${answered.status} ${answered.text}`)
    return (await this.follow(new URL(next, url), provider)).url
  }

  #cookiesFor(url: URL): string {
    return [...this.#cookies]
      .filter(([key, { path }]) => key.startsWith(`${url.origin} `) && url.pathname.startsWith(path))
      .map(([key, { value }]) => `${key.slice(url.origin.length + 1)}=${value}`)
      .join('; ')
  }

  #keep(url: URL, line: string): void {
    const [pair = '', ...attributes] = line.split(';').map((part) => part.trim())
    const at = pair.indexOf('=')
    const path = attributes.find((one) => /^path=/i.test(one))?.slice(5) ?? '/'
    const key = `${url.origin} ${pair.slice(0, at)}`
    if (pair.slice(at + 1) === '') this.#cookies.delete(key)
    else this.#cookies.set(key, { value: pair.slice(at + 1), path })
  }
}

/** The parameters of an authorization request, and the verifier of its code. */
export interface AskedAuthorization {
  readonly url: URL
  readonly verifier: string
}

/** Makes the address by which a program asks for a code. `more`: over the usual parameters; null leaves one out. */
export function authorizationUrl(
  client: string,
  redirect: string,
  more: Readonly<Record<string, string | null>> = {},
): AskedAuthorization {
  const verifier = randomBytes(32).toString('base64url')
  const params = {
    client_id: client,
    redirect_uri: redirect,
    response_type: 'code',
    state: 'the-state',
    resource: `${PEOPLE_URL}/v1/mcp`,
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
    ...more,
  }
  const url = new URL('/oauth/authorize', PEOPLE_URL)
  for (const [name, value] of Object.entries(params)) if (value !== null) url.searchParams.set(name, value)
  return { url, verifier }
}

/** Asks the token endpoint. */
export async function askToken(
  { fetch }: Pick<PeopleGateway, 'fetch'>,
  fields: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>> = {},
  // biome-ignore lint/suspicious/noExplicitAny: a test reads the answer as its client would, field by field
): Promise<{ readonly status: number; readonly json: any }> {
  const answer = await fetch(`${PEOPLE_URL}/oauth/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body: new URLSearchParams(fields).toString(),
  })
  return { status: answer.status, json: await answer.json() }
}
