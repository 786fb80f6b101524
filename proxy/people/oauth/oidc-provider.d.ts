/** The parts of the authorization server that are used; it comes without types. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  export interface InteractionDetails {
    readonly uid: string
    readonly prompt: { readonly name: string }
    readonly params: Readonly<Record<string, unknown>>
    readonly session?: { readonly accountId: string; readonly uid?: string }
  }

  export interface ProviderGrant {
    readonly jti: string
    readonly exp: number
    addOIDCScope(scope: string): void
    addOIDCClaims(claims: readonly string[]): void
    addResourceScope(resource: string, scope: string): void
    save(): Promise<string>
  }

  export interface ProviderClient {
    readonly clientId: string
    readonly clientName?: string
    readonly redirectUris: readonly string[]
    readonly grantTypes: readonly string[]
    readonly clientIdMetadataDocument?: true
    metadata(): Readonly<Record<string, unknown>>
    grantTypeAllowed(type: string): boolean
    /** Sends a logout token, as at a sign-out. */
    backchannelLogout(sub: string | undefined, sid: string | undefined): Promise<void>
  }

  export interface ProviderSession {
    readonly uid: string
    readonly id: string
    readonly accountId?: string
    readonly amr?: readonly string[]
    loginAccount(login: { accountId: string; amr: readonly string[] }): void
    save(ttl: number): Promise<string>
    destroy(): Promise<void>
  }

  export interface ProviderToken {
    readonly accountId: string
    readonly kind: string
    readonly redirectUri?: string
    readonly grantId: string
    readonly aud?: string
    readonly jkt?: string
    readonly amr?: readonly string[]
    scope?: string
    readonly expiration: number
    readonly tokenType: string
    readonly scopes: ReadonlySet<string>
    resourceServer: unknown
    scope?: string
    setThumbprint(name: 'jkt', jkt: string): void
    save(): Promise<string>
  }

  /** The context of one request, inside the library. */
  export interface ProviderContext {
    readonly method: string
    body: unknown
    set(headers: Readonly<Record<string, string>>): void
    readonly cookies: {
      set(name: string, value: string | null, options: object): void
    }
    readonly oidc: {
      readonly route: string
      readonly params: Record<string, unknown>
      readonly body: Record<string, unknown>
      readonly client: ProviderClient
      readonly account?: { readonly accountId: string }
      readonly session: ProviderSession
      readonly result?: { readonly consent?: { readonly grantId: string; readonly client: string } }
      readonly requestParamScopes: ReadonlySet<string>
      readonly entities: {
        readonly Grant?: ProviderGrant
        readonly Client?: ProviderClient
        readonly AuthorizationCode?: ProviderToken
        readonly RefreshToken?: ProviderToken
      }
      entity(name: string, value: unknown): void
    }
  }

  export class Prompt {
    constructor(info: { readonly name: string; readonly requestable: boolean }, ...checks: readonly Check[])
  }

  export class Check {
    static readonly REQUEST_PROMPT: true
    static readonly NO_NEED_TO_PROMPT: false
    constructor(reason: string, description: string, check: (ctx: ProviderContext) => boolean)
  }

  export const interactionPolicy: { readonly Prompt: typeof Prompt; readonly Check: typeof Check }

  export const errors: Readonly<
    Record<
      'InvalidGrant' | 'InvalidTarget' | 'InvalidClientMetadata' | 'InvalidScope' | 'InvalidRequest',
      new (
        message?: string,
      ) => Error
    >
  >

  export default class Provider {
    constructor(issuer: string, configuration: Readonly<Record<string, unknown>>)
    callback(): (req: IncomingMessage, res: ServerResponse) => Promise<void>
    createContext(req: IncomingMessage, res: ServerResponse): ProviderContext
    on(event: 'server_error', hear: (ctx: unknown, error: Error) => void): void
    registerGrantType(
      name: string,
      handler: (ctx: ProviderContext) => Promise<void>,
      parameters: readonly string[],
    ): void
    interactionDetails(req: IncomingMessage, res: ServerResponse): Promise<InteractionDetails>
    interactionResult(
      req: IncomingMessage,
      res: ServerResponse,
      result: object,
      options?: { readonly mergeWithLastSubmission: boolean },
    ): Promise<string>
    interactionFinished(req: IncomingMessage, res: ServerResponse, result: object): Promise<void>
    readonly Grant: {
      new (of: {
        readonly clientId: string
        readonly accountId: string
        readonly jti?: string
      }): ProviderGrant
      find(id: string): Promise<ProviderGrant | undefined>
    }
    readonly Session: {
      new (): ProviderSession
      get(ctx: ProviderContext): Promise<ProviderSession>
    }
    readonly AccessToken: (new (
      of: object,
    ) => ProviderToken) & {
      find(value: string): Promise<ProviderToken | undefined>
    }
    readonly ResourceServer: new (
      identifier: string,
      info: object,
    ) => unknown
    readonly Client: { find(id: string): Promise<ProviderClient | undefined> }
  }
}

declare module 'oidc-provider/lib/adapters/memory_adapter.js' {
  export function createMemoryAdapter(clockToleranceS: number): (model: string) => object
}

declare module 'oidc-provider/lib/helpers/grants.js' {
  import type Provider from 'oidc-provider'
  import type { ProviderContext } from 'oidc-provider'

  interface ProvenKey {
    readonly thumbprint: string
  }

  export function validateDpop(provider: Provider, ctx: ProviderContext): Promise<ProvenKey | undefined>
  export function checkDpopReplay(
    provider: Provider,
    ctx: ProviderContext,
    proof: ProvenKey,
    clientId: string,
  ): Promise<void>
}
