import { Agent } from 'node:https'
import { ADMIN_SECRET, type Answered, agentOf, ask, type TestGateway } from './gateway.ts'
import { Jar } from './oidc/jar.ts'

export const ORGANISATION = '/proxy/setup/organisation'
/** Nobody has set a secret yet. */
export const UNSET = { settings: { MCP_PROXY_ADMIN_SECRET: '' } }

type Called = Pick<TestGateway, 'call'>

/** The CA certificate that a gateway hands out, to whoever trusts what it shows. */
export async function caOf(url: string): Promise<string> {
  const agent = new Agent({ rejectUnauthorized: false })
  return (await ask(`${url}/pki/ca.crt`, 'GET', { agent })).text
}

/** A gateway as clients see it that trust this CA and no other. */
export const trusting = (gateway: Called, ca: string): Called => ({
  call: (who, method, path, asked) => gateway.call(who, method, path, { ...asked, agent: agentOf(ca, who) }),
})

/** A browser that stays on one connection. */
export const onOneConnection = (gateway: Called & { readonly ca: string }): Called => {
  const agent = agentOf(gateway.ca, null, true)
  return { call: (who, method, path, asked) => gateway.call(who, method, path, { ...asked, agent }) }
}

/** The token that the forms of a page carry. */
export const csrfOf = ({ text }: Answered): string => /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? ''

/** The second step of the first boot, in a browser that has set the secret, or signed in by it. */
export interface AtOrganisation {
  readonly jar: Jar
  readonly page: Answered
  /** Answers for the organisation. */
  readonly send: (fields: Readonly<Record<string, string>>) => Promise<Answered>
}

/** Takes a browser there: by the first step, where there is a code. */
export async function atOrganisation(gateway: Called, code?: string): Promise<AtOrganisation> {
  const jar = new Jar(gateway)
  const secret = { secret: ADMIN_SECRET }
  const { status, text } = code
    ? await jar.send('/proxy/setup', { ...secret, secret_again: ADMIN_SECRET, code })
    : await jar.send('/proxy/sign-in', secret)
  if (status !== 303) throw new Error(`${status} ${text}`)
  const page = await jar.ask('GET', ORGANISATION)
  return { jar, page, send: (fields) => jar.send(ORGANISATION, { csrf: csrfOf(page), ...fields }) }
}
