import { messageOf } from '../../db/support/error-message.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { demandOf, skippedLines, toolTotals, unknownLines } from './lines.ts'
import {
  BINDINGS_PATH,
  fetchBindings,
  mcpCommand,
  RESOURCES_PATH,
  type ResourceDetailView,
  type ResourceView,
  resourceNamed,
} from './resources.ts'

/** A server that could not be read is registered all the same, and reported. */
export const addCommand = subcommandOf({
  takes: 'NAME URL',
  about: 'register a server; its tools are read and pinned as they are now',
  misuse: `give a name and the URL of the server: ${mcpCommand('add NAME URL')}`,
  options: {
    capability: {
      type: 'string',
      value: 'CAP',
      description: 'what each of its tools requires (default: a binding only)',
    },
    'tool-capability': {
      type: 'string',
      multiple: true,
      value: 'T=CAP',
      description: 'what one tool requires instead; may be repeated',
    },
    auth: { type: 'string', value: 'TYPE', description: 'bearer, api_key, mtls or oauth (default none)' },
    secret: {
      type: 'string',
      value: 'REF',
      description:
        'where its secret is: env:MCP_SECRET_NAME, or file:/… below MCP_PROXY_SECRETS_DIR; never the secret itself',
    },
    reader: {
      type: 'string',
      value: 'ID',
      description: 'with --auth oauth: the principal whose account reads the tools',
    },
    issuer: {
      type: 'string',
      value: 'URL',
      description: 'with --auth oauth: its authorization server (default: the one that it names itself)',
    },
    scope: {
      type: 'string',
      multiple: true,
      value: 'SCOPE',
      description: 'with --auth oauth: a scope to ask for; may be repeated',
    },
    'client-id': { type: 'string', value: 'ID', description: 'with --auth oauth: a client registered there' },
    'client-secret': {
      type: 'string',
      value: 'REF',
      description: 'where the secret of that client is, as for --secret',
    },
    'allowed-domain': {
      type: 'string',
      multiple: true,
      value: 'HOST',
      description: 'connect to this host only; may be repeated',
    },
    description: { type: 'string', value: 'TEXT', description: 'what it is for' },
    bind: {
      type: 'string',
      multiple: true,
      value: 'ID',
      description: 'let this principal reach it; may be repeated',
    },
  },
  check: ({ 'tool-capability': pairs = [] }) => toolPairs('tool-capability', 'CAPABILITY', pairs),
  run: async ({ call, say, values, args: [name, url], checked: toolCapabilities }) => {
    const body = {
      name,
      endpoint_url: url,
      description: values.description,
      auth_type: values.auth,
      auth_secret_ref: values.secret,
      oauth: oauthOf(values),
      required_capability: values.capability,
      tool_capabilities: toolCapabilities,
      allowed_domains: values['allowed-domain'],
    }
    const resource = expectStatus<ResourceDetailView>(await call('POST', RESOURCES_PATH, body), 201)
    say(...registeredLines(resource))
    await bindTo(call, say, resource, values.bind ?? [])
  },
})

interface OAuthOptions {
  readonly auth?: string | undefined
  readonly reader?: string | undefined
  readonly issuer?: string | undefined
  readonly scope?: readonly string[] | undefined
  readonly 'client-id'?: string | undefined
  readonly 'client-secret'?: string | undefined
}

/** Makes the block of a server of accounts. The service says what is missing, or too much. */
function oauthOf(values: OAuthOptions) {
  const { reader, issuer, scope: scopes, 'client-id': client_id, 'client-secret': client_secret_ref } = values
  const given = { reader, issuer, scopes, client_id, client_secret_ref }
  const isGiven = Object.values(given).some((value) => value !== undefined)
  return values.auth === 'oauth' || isGiven ? given : undefined
}

/** Reads `TOOL=VALUE` pairs of an option. A tool's name may hold an equals sign, and a value none. */
export function toolPairs(
  option: string,
  value: string,
  pairs: readonly string[],
): Readonly<Record<string, string>> {
  const found = new Map<string, string>()
  for (const pair of pairs) {
    const end = pair.lastIndexOf('=')
    const tool = pair.slice(0, end)
    if (end < 1) throw new Error(`--${option} must be TOOL=${value}, got ${JSON.stringify(pair)}`)
    if (found.has(tool)) throw new Error(`--${option} names the tool ${JSON.stringify(tool)} twice`)
    found.set(tool, pair.slice(end + 1))
  }
  return Object.fromEntries(found)
}

function registeredLines(resource: ResourceDetailView): readonly string[] {
  const { name, resource_id: id, last_error: error, tools } = resource
  const lines = [
    `registered ${name} (${id}); its tools require ${demandOf(resource)} unless you said otherwise`,
  ]
  if (error !== null) {
    return [
      ...lines,
      `it could not be read yet, so it has no tools: ${error}`,
      `try: ${mcpCommand(`refresh ${name}`)}`,
    ]
  }
  const flagged = tools.filter(({ flags }) => flags.length > 0).length
  lines.push(`read ${name}: ${toolTotals(tools)}, pinned as they are now`)
  if (flagged > 0) lines.push(`${flagged} of them should be looked at: ${mcpCommand(`show ${name}`)}`)
  return [...lines, ...skippedLines(resource), ...unknownLines(resource)]
}

const CONFLICT = 409

export const bindCommand = withIds(
  'bind',
  'let agents, users or workloads reach it, each with the capabilities that it holds',
  bindTo,
)

/** `mcp unbind`: ends what {@link bindCommand} began. */
export const unbindCommand = withIds('unbind', 'takes effect on the next call', unbindFrom)

type WithIds = (
  call: AdminCall,
  say: PrintLines,
  resource: ResourceView,
  ids: readonly string[],
) => Promise<void>

function withIds(name: string, about: string, work: WithIds): AdminSubcommand {
  return subcommandOf({
    takes: 'NAME ID…',
    about,
    misuse: `name the server and the principals: ${mcpCommand(`${name} NAME ID…`)}`,
    run: async ({ call, say, args: [server, ...ids] }) =>
      work(call, say, await resourceNamed(call, server), ids),
  })
}

/** Binds principals one after the other, each printed. Throws at the first that is refused. */
async function bindTo(
  call: AdminCall,
  say: PrintLines,
  { name, resource_id }: ResourceView,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const answer = await call('POST', BINDINGS_PATH, { agent_id: id, resource_id })
    if (answer.status === CONFLICT) throw new Error(`${id} is already bound to ${name}`)
    withPrincipalId(id, () => expectStatus(answer, 201))
    say(`${id} is bound to ${name}`)
  }
}

async function unbindFrom(
  call: AdminCall,
  say: PrintLines,
  resource: ResourceView,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const found = (await fetchBindings(call, resource)).find(({ agent_id: bound }) => bound === id)
    if (!found) throw new Error(`${id} is not bound to ${resource.name}`)
    const answer = await call('DELETE', `${BINDINGS_PATH}/${encodeURIComponent(found.binding_id)}`)
    withPrincipalId(id, () => expectStatus(answer, 204))
    say(`${id} is no longer bound to ${resource.name}`)
  }
}

/** Names the principal in the service's sentence, which names a field alone. */
function withPrincipalId(id: string, check: () => unknown): void {
  try {
    check()
  } catch (error) {
    throw new Error(`${id}: ${messageOf(error)}`, { cause: error })
  }
}
