/** What the tests use of the identity provider, which comes without types. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  interface Details {
    readonly params: Readonly<Record<string, unknown>>
  }

  interface Grant {
    addOIDCScope(scope: string): void
    addOIDCClaims(claims: readonly string[]): void
    save(): Promise<string>
  }

  interface Client {
    /** Sends a logout token, as at a sign-out. */
    backchannelLogout(sub: string | undefined, sid: string | undefined): Promise<void>
  }

  export default class Provider {
    constructor(issuer: string, configuration: Readonly<Record<string, unknown>>)
    callback(): (req: IncomingMessage, res: ServerResponse) => Promise<void>
    interactionDetails(req: IncomingMessage, res: ServerResponse): Promise<Details>
    interactionFinished(req: IncomingMessage, res: ServerResponse, result: object): Promise<void>
    readonly Grant: new (of: {
      readonly clientId: string
      readonly accountId: string
    }) => Grant
    readonly Client: { find(id: string): Promise<Client | undefined> }
  }
}

declare module 'oidc-provider/lib/adapters/memory_adapter.js' {
  export function createMemoryAdapter(clockToleranceS: number): (model: string) => object
}
