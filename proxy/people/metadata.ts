import { isObject } from '../../db/support/json.ts'
import { isMcpDoor } from '../../plugins/dpop/audience.ts'
import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { RESOURCE_METADATA } from '../auth/metadata.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import { CLIENT_DOCUMENT } from '../mcp/accounts/accounts.ts'
import { clientDocument } from '../mcp/accounts/clients.ts'
import { type PeopleOptions, scopesOf } from './options.ts'
import type { PeopleSignIn } from './pages/sign-in.ts'

interface ResourceMetadata {
  /** The one URL of the listener. */
  readonly url: string
  readonly options: Pick<PeopleOptions, 'llm'>
  /** Tells whether anything here takes a token without a key. */
  readonly takesBearer: () => Promise<boolean>
}

/**
 * GET /.well-known/oauth-protected-resource, followed by the path of an MCP endpoint if it is about one (RFC
 * 9728). Never by `Host`: the listener has one URL.
 */
export const describePeopleResource =
  ({ url, options, takesBearer }: ResourceMetadata) =>
  async ({ path }: Arrival): Promise<Reply> => {
    const door = path.slice(RESOURCE_METADATA.length)
    if (door !== '' && !isMcpDoor(door)) throw new Refusal('not_found')
    return jsonReply(200, {
      resource: `${url}${door}`,
      authorization_servers: [url],
      scopes_supported: door === '' ? scopesOf(options) : ['mcp'],
      bearer_methods_supported: ['header'],
      dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
      dpop_bound_access_tokens_required: !(await takesBearer()),
    })
  }

/** The profile by which an identity provider vouches for people. */
const ID_JAG_PROFILE = 'urn:ietf:params:oauth:grant-profile:id-jag'

/** GET /.well-known/oauth-authorization-server, also at openid-configuration (RFC 8414). */
export const describePeopleServer =
  ({ service, options }: Pick<PeopleSignIn, 'service' | 'options'>) =>
  async (arrival: Arrival): Promise<Reply> => {
    const { body } = await service.answer(arrival)
    const described: unknown = JSON.parse(Buffer.isBuffer(body) ? body.toString() : '')
    if (!isObject(described)) throw new Error('the metadata is no object')
    const { claims_supported, claims_parameter_supported, ...rest } = described
    return jsonReply(200, {
      ...rest,
      scopes_supported: scopesOf(options),
      response_modes_supported: ['query'],
      ...(options.id_jag && { authorization_grant_profiles_supported: [ID_JAG_PROFILE] }),
    })
  }

/** GET /oauth/client.json: our client's own document, by which MCP servers' issuers know this service (docs/accounts.md). */
export const describeOurClient = (url: string) => async (): Promise<Reply> =>
  jsonReply(200, clientDocument(url, `${url}${CLIENT_DOCUMENT}`))
