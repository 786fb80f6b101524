import type { Identity, TestGateway } from '../gateway.ts'
import { Jar } from '../oidc/jar.ts'

/** A browser that shows an operator's certificate, and was signed in by it. */
export async function signedInAs(gateway: Pick<TestGateway, 'call'>, who: Identity): Promise<Jar> {
  const jar = new Jar({ call: (_nobody, ...asked) => gateway.call(who, ...asked) })
  const { status, text } = await jar.send('/proxy/sign-in/certificate', {})
  if (status !== 303) throw new Error(`${status} ${text}`)
  return jar
}
