import { access, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { writePrivate } from '../../certs/authority/key-store.ts'
import { readSettings, type Settings } from '../../proxy/settings.ts'
import { gatewayText } from '../client/identity/files.ts'
import { dpopKeyIn, publicJwk } from '../client/signing/dpop-key.ts'
import { commandOf, verbOf } from '../command.ts'
import { type Call, expect, withControl } from '../control-client.ts'

export const verb = verbOf({
  name: 'sallyport agent',
  takes: 'NAME',
  make: 'make agent NAME=… [CAPS=…]',
  about: `Enrolls an agent with a minted certificate and writes its identity, readable by you alone:
  agent.crt    the certificate, leaf and intermediate
  agent.key    the private key; the service keeps no copy
  dpop.jwk     the private key that signs its DPoP proofs; the service knows the public one
  org-ca.crt   what the agent trusts the gateway by: the root
  ca-chain.pem the same with the intermediate, under the name that the Python helper looks for
  gateway.json where the gateway is; change it where the agent lives on another machine`,
  options: {
    caps: {
      type: 'string',
      value: 'CAP,CAP',
      default: '',
      description: `llm.chat, mcp.tools.list, mcp.tools.call, http.get, or your own; none are held by default,
and an agent that holds none is refused everywhere`,
    },
    out: { type: 'string', value: 'DIR', description: 'where the identity goes (default agents/NAME)' },
  },
  notes: 'Works beside a running gateway and without one.',
  run: async ({ caps, out }, [name, ...rest]) => {
    if (!name || rest.length > 0)
      throw new Error(
        `say one name: ${commandOf('agent NAME=my-agent CAPS=llm.chat', 'agent my-agent --caps llm.chat')}`,
      )
    const capabilities = caps.split(',').flatMap((token) => token.trim() || [])
    await enrollAgent({ name, capabilities, directory: out ?? `agents/${name}` })
  },
})

interface Wanted {
  readonly name: string
  readonly capabilities: readonly string[]
  /** The directory of the identity's files. Made with mode 0700. */
  readonly directory: string
}

/**
 * Enrolls an agent and writes its identity; prints where, and a line to try it with. Throws one sentence on a
 * refusal.
 */
async function enrollAgent({ name, capabilities, directory }: Wanted): Promise<void> {
  const settings = readSettings(process.env, process.cwd())
  const key = join(directory, 'agent.key')
  // Before anything is enrolled: the key is shown once, so there must be a place for it that holds no other.
  await mkdir(directory, { recursive: true, mode: 0o700 })
  if (await exists(key))
    throw new Error(`${key} exists already: choose another NAME, or move that identity away`)
  const { agent, url } = await withControl(settings, async (call) => {
    const enrolled = expect(await call('POST', '/v1/admin/agents', { agent_name: name, capabilities }), 201)
    await writePrivate(key, String(enrolled.private_key_pem))
    await writePrivate(join(directory, 'agent.crt'), String(enrolled.cert_chain_pem))
    const publicPem = async (path: string): Promise<string> => String((await call('GET', path)).body)
    await writePrivate(join(directory, 'org-ca.crt'), await publicPem('/pki/ca.crt'))
    await writePrivate(join(directory, 'ca-chain.pem'), await publicPem('/pki/ca-chain.pem'))
    const path = `/v1/admin/agents/${String(enrolled.agent_id)}/dpop-jwk`
    expect(await call('POST', path, publicJwk(dpopKeyIn(directory))), 200)
    return { agent: enrolled, url: await urlOf(settings, call) }
  })
  await writePrivate(join(directory, 'gateway.json'), gatewayText(url, String(agent.agent_id)))
  process.stdout.write(summary(url, agent, directory))
}

/**
 * The URL by which clients reach the gateway: as the running one says; where none runs, as far as the settings
 * tell, which do not know a port that is picked at each start.
 */
async function urlOf({ publicUrls, hostnames, listen }: Settings, call: Call): Promise<string> {
  const { issuer } = expect(await call('GET', '/.well-known/oauth-authorization-server'), 200)
  const [host = 'localhost'] = hostnames
  const told = publicUrls?.[0] ?? `https://${host.includes(':') ? `[${host}]` : host}:${listen.port}`
  return new URL(typeof issuer === 'string' && issuer !== '' ? issuer : told).origin
}

function summary(url: string, agent: Record<string, unknown>, directory: string): string {
  const held =
    Array.isArray(agent.capabilities) && agent.capabilities.length > 0
      ? agent.capabilities.join(', ')
      : 'none'
  return `enrolled ${String(agent.agent_id)} (capabilities: ${held}) in ${directory}
try it:
  curl --cacert ${directory}/org-ca.crt --cert ${directory}/agent.crt --key ${directory}/agent.key \\
    ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}'
or let any client of this machine speak as it, by DPoP: ${commandOf(`connect IDENTITY=${directory}`, `connect --identity ${directory}`)}
`
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
