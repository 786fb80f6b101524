import type { Test } from 'tap'
import { Agent, fetch } from 'undici'
import type { Identity, TestGateway } from '../gateway.ts'

type Fetch = (url: string, init: object) => Promise<Response>

/** `fetch` with mutual TLS, as a client of the field would set it up; its connections end with the test. */
export function tlsFetch(t: Test, { ca }: Pick<TestGateway, 'ca'>, who: Identity | null): Fetch {
  const dispatcher = new Agent({ connect: { ca, ...(who && { cert: who.cert, key: who.key }) } })
  t.teardown(() => dispatcher.destroy())
  // The same fetch; its types know of a dispatcher, which the global ones do not.
  const own = fetch as unknown as Fetch
  return (url, init) => own(url, { ...init, dispatcher })
}
