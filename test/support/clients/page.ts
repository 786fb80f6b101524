import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const SELF = { name: 'page', version: '1.0.0' }
/** A browser shows its user's certificate to another site only if the page says so. */
const WITH_CERTIFICATE = { requestInit: { credentials: 'include' } } as const

/** The answers that a page has had of a door. */
export interface HeardByPage {
  readonly tools: readonly string[]
  readonly answer: string
  readonly progress: number
}

/** Connects by the official SDK, lists, calls one tool and leaves. Runs in the page. */
async function talk(url: string, kind: 'v1' | 'modern', tool: string, args: object): Promise<HeardByPage> {
  const client =
    kind === 'v1'
      ? new ClientV1(SELF)
      : new ClientV2(SELF, { versionNegotiation: { mode: { pin: '2026-07-28' } } })
  const Transport = kind === 'v1' ? TransportV1 : TransportV2
  const connected = client as ClientV1
  const transport = new Transport(new URL(url), WITH_CERTIFICATE)
  await connected.connect(transport as Parameters<ClientV1['connect']>[0])
  const { tools } = await connected.listTools()
  let progress = 0
  const call = { name: tool, arguments: { ...args } }
  const onprogress = (): void => {
    progress += 1
  }
  // The second argument of v1 is a schema of the result, which v2 has not.
  const answer =
    kind === 'v1'
      ? await connected.callTool(call, undefined, { onprogress })
      : await (client as ClientV2).callTool(call, { onprogress })
  if (kind === 'v1') await (transport as TransportV1).terminateSession()
  await connected.close()
  return { tools: tools.map(({ name }) => name), answer: JSON.stringify(answer.content), progress }
}

Object.assign(globalThis, { talk })
