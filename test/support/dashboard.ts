import { request } from 'node:https'
import { agentOf, type Identity, type TestGateway } from './gateway.ts'
import type { Jar } from './oidc/jar.ts'

/** A page's stream of events that is open. */
export interface Following {
  readonly status: number
  /** What has come so far. */
  readonly text: () => string
  /** Resolves when it is over. */
  readonly over: Promise<void>
  readonly hangUp: () => void
}

/** Follows what is recorded, as the page does, with a browser's session and certificate. It is hung up with the test. */
export async function following(
  t: { teardown: (end: () => void) => void },
  { url, ca }: Pick<TestGateway, 'url' | 'ca'>,
  { session = '' }: Pick<Jar, 'session'>,
  who: Identity | null = null,
): Promise<Following> {
  const agent = agentOf(ca, who)
  const req = request(`${url}/proxy/activity/live`, {
    agent,
    headers: { cookie: `__Host-sallyport=${session}`, 'sec-fetch-site': 'same-origin' },
  })
  const { promise: over, resolve: end } = Promise.withResolvers<void>()
  const res = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
    req.once('response', resolve).once('error', reject).end()
  })
  let text = ''
  res.on('data', (chunk) => {
    text += String(chunk)
  })
  res.on('error', () => end())
  res.once('close', end)
  const hangUp = (): void => {
    req.destroy()
    agent.destroy()
  }
  t.teardown(hangUp)
  return { status: res.statusCode ?? 0, text: () => text, over, hangUp }
}
