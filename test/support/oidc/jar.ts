import { ADMIN_SECRET, type Answered, type TestGateway } from '../gateway.ts'

/** What a browser sends along, whatever it asks for. */
type Headers = Readonly<Record<string, string>>

/** A browser without a window: it keeps cookies, and sends them with every request, as the Strict ones are from a page of ours. */
export class Jar {
  readonly cookies = new Map<string, string>()
  readonly #gateway: Pick<TestGateway, 'call'>

  constructor(gateway: Pick<TestGateway, 'call'>) {
    this.#gateway = gateway
  }

  async ask(method: string, path: string, headers: Headers = {}, body?: unknown): Promise<Answered> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const answered = await this.#gateway.call(null, method, path, {
      headers: { ...(cookie !== '' && { cookie }), ...headers },
      ...(body !== undefined && { body }),
    })
    for (const line of [answered.headers['set-cookie'] ?? []].flat()) this.#keep(line)
    return answered
  }

  /** Sends a form, as a page of ours does. */
  send(path: string, fields: Readonly<Record<string, string>>, headers: Headers = {}): Promise<Answered> {
    const type = { 'content-type': 'application/x-www-form-urlencoded' }
    return this.ask('POST', path, { ...type, ...headers }, new URLSearchParams(fields).toString())
  }

  /** Asks the admin API for a change, as a page of ours does. */
  async change(method: string, path: string, body?: unknown): Promise<Answered> {
    const { json } = await this.ask('GET', '/v1/admin/session')
    return this.ask(method, path, { 'x-csrf-token': json.csrf }, body)
  }

  /** The session's cookie; undefined: nobody is signed in. */
  get session(): string | undefined {
    return this.cookies.get('__Host-sallyport')
  }

  #keep(line: string): void {
    const [pair = ''] = line.split(';')
    const [name = '', value = ''] = pair.split('=')
    if (value === '' || /max-age=0/i.test(line)) this.cookies.delete(name)
    else this.cookies.set(name, value)
  }
}

/** A browser that was signed in by the operator secret. */
export async function signedInBySecret(gateway: TestGateway): Promise<Jar> {
  const jar = new Jar(gateway)
  const { status, text } = await jar.send('/proxy/sign-in', { secret: ADMIN_SECRET })
  if (status !== 303) throw new Error(`${status} ${text}`)
  return jar
}
