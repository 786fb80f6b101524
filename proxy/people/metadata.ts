import { isMcpDoor } from '../../plugins/dpop/audience.ts'
import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { RESOURCE_METADATA } from '../auth/metadata.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import type { PeopleOptions } from './options.ts'

interface ResourceMetadata {
  /** The one URL of the listener. */
  readonly url: string
  readonly options: Pick<PeopleOptions, 'llm'>
  /** Tells whether anything here takes a token without a key. */
  readonly takesBearer: () => Promise<boolean>
}

/** The scopes that stand for all that a person holds, asked at each call. */
export const scopesOf = ({ llm }: Pick<PeopleOptions, 'llm'>): readonly string[] =>
  llm === 'off' ? ['mcp'] : ['mcp', 'llm']

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
