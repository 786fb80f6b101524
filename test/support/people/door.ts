import type { Test } from 'tap'
import { Agent, buildConnector, fetch } from 'undici'
import { type TestGateway, type TestOptions, testGateway } from '../gateway.ts'

/** The one URL of the listener for people in tests; its port is another one, as behind a balancer. */
export const PEOPLE_URL = 'https://people.test'

export interface PeopleGateway extends TestGateway {
  /** Asks the listener for people, without a certificate, as its clients do. */
  readonly fetch: typeof globalThis.fetch
}

/** Starts a gateway whose listener for people is open. `people`: what `65-people.yaml` says. */
export async function peopleGateway(
  t: Test,
  people: Readonly<Record<string, unknown>> = {},
  { settings, files, ...options }: TestOptions = {},
): Promise<PeopleGateway> {
  const gateway = await testGateway(t, {
    ...options,
    settings: {
      MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:0',
      MCP_PROXY_PEOPLE_URL: PEOPLE_URL,
      MCP_PROXY_HOSTNAMES: 'localhost,127.0.0.1,people.test',
      ...settings,
    },
    files: { '65-people.yaml': JSON.stringify({ plugin: 'people', ...people }), ...files },
  })
  return { ...gateway, fetch: peopleFetch(t, gateway) }
}

/**
 * Makes a fetch that reaches {@link PEOPLE_URL} at the gateway's port, and everything else where it is. `from`: the
 * address of this machine that it comes from.
 */
export function peopleFetch(
  t: Test,
  { peoplePort, ca }: Pick<TestGateway, 'peoplePort' | 'ca'>,
  from = '127.0.0.1',
): typeof globalThis.fetch {
  const connect = buildConnector({ ca })
  const [here, elsewhere] = [
    new Agent({
      connect: (options, done) =>
        connect(
          {
            ...options,
            ...{ hostname: '127.0.0.1', port: String(peoplePort), servername: 'people.test' },
            localAddress: from,
          },
          done,
        ),
    }),
    new Agent(),
  ]
  t.teardown(() => Promise.all([here.destroy(), elsewhere.destroy()]))
  // undici's own types and those of the platform name one thing.
  return ((input: string | URL, init: object = {}) => {
    const dispatcher = new URL(input).origin === PEOPLE_URL ? here : elsewhere
    return fetch(input, { ...init, dispatcher })
  }) as typeof globalThis.fetch
}
