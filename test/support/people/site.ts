import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { trusted } from '../llm/trusted.ts'

/** A site of a client, with documents that tests change. */
export interface ClientSite {
  readonly url: string
  /** Documents by path: what is sent, or a function that answers. */
  readonly documents: Map<string, object | string>
  readonly asked: string[]
}

/** Starts a site on this machine whose certificate this process trusts. */
export async function clientSite(t: Test): Promise<ClientSite> {
  const documents = new Map<string, object | string>()
  const asked: string[] = []
  const server = createServer(await trusted(t), ({ url = '' }, res) => {
    asked.push(url)
    const document = documents.get(url)
    if (document === undefined) res.writeHead(404).end()
    else if (typeof document === 'string') res.writeHead(302, { location: document }).end()
    else res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  })
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, documents, asked }
}
