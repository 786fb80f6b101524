import { parseArgs } from 'node:util'
import { bindTo } from './bind.ts'
import { toolTotals, unknownLines } from './lines.ts'
import { RESOURCES, type WholeResource, type Work, wholeResource } from './resources.ts'

const many = { type: 'string', multiple: true } as const
const OPTIONS = {
  capability: { type: 'string' },
  'tool-capability': many,
  auth: { type: 'string' },
  secret: { type: 'string' },
  'allowed-domain': many,
  description: { type: 'string' },
  bind: many,
} as const

/**
 * `mcp add`: registers a server, says what its tools came to, and binds principals to it. A server that could not be read
 * is registered all the same, and said to be so.
 */
export function addVerb(args: readonly string[]): Work {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS })
  const [name, url, ...rest] = positionals
  if (!name || !url || rest.length > 0)
    throw new Error('say a name and where the server is: mcp add NAME URL')
  const body = {
    name,
    endpoint_url: url,
    description: values.description,
    auth_type: values.auth,
    auth_secret_ref: values.secret,
    required_capability: values.capability,
    tool_capabilities: capabilities(values['tool-capability'] ?? []),
    allowed_domains: values['allowed-domain'],
  }
  return async (call, say) => {
    const resource = wholeResource(await call('POST', RESOURCES, body), 201)
    say(...registered(resource))
    await bindTo(call, say, resource, values.bind ?? [])
  }
}

/** `TOOL=CAPABILITY` each. A tool's name may hold an equals sign, and a capability none. */
function capabilities(pairs: readonly string[]): Readonly<Record<string, string>> {
  const found = new Map<string, string>()
  for (const pair of pairs) {
    const end = pair.lastIndexOf('=')
    const tool = pair.slice(0, end)
    if (end < 1) throw new Error(`--tool-capability must be TOOL=CAPABILITY, got ${JSON.stringify(pair)}`)
    if (found.has(tool)) throw new Error(`--tool-capability names the tool ${JSON.stringify(tool)} twice`)
    found.set(tool, pair.slice(end + 1))
  }
  return Object.fromEntries(found)
}

function registered(resource: WholeResource): readonly string[] {
  const { name, resource_id: id, required_capability: demanded, last_error: error, tools } = resource
  const lines = [`registered ${name} (${id}); its tools demand ${demanded} where you said nothing else`]
  if (error !== null) {
    return [
      ...lines,
      `it could not be read yet, so it has no tools: ${error}`,
      `try: sallyport mcp refresh ${name}`,
    ]
  }
  const flagged = tools.filter(({ flags }) => flags.length > 0).length
  lines.push(`read ${name}: ${toolTotals(tools)}, pinned as they are now`)
  if (flagged > 0) lines.push(`${flagged} of them should be looked at: sallyport mcp show ${name}`)
  return [...lines, ...unknownLines(resource)]
}
