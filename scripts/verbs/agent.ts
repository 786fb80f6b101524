import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { writePrivateFile } from '../../certs/authority/key-store.ts'
import { expectStatus } from '../admin/call.ts'
import { type AdminDoor, DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { clientUrl, writeGateway, writeTrust } from '../admin/whereabouts.ts'
import { dpopKeyIn, publicDpopJwk } from '../client/signing/dpop-key.ts'
import { capabilitiesIn, commandOf, verbOf } from '../command.ts'
import { print } from '../print.ts'
import { shellWord } from '../shell-word.ts'

export const verb = verbOf({
  name: 'sallyport agent',
  takes: 'NAME',
  misuse: `give one name: ${commandOf('agent NAME=my-agent CAPS=llm.chat', 'agent my-agent --caps llm.chat')}`,
  make: 'make agent NAME=… [CAPS=…]',
  about: `Enrolls an agent with a minted certificate and writes its identity, readable by you alone:
  agent.crt    the certificate, leaf and intermediate
  agent.key    the private key; the service keeps no copy
  dpop.jwk     the private key that signs its DPoP proofs; the service knows the public one
  org-ca.crt   the root certificate, by which the agent trusts the gateway
  ca-chain.pem the root with the intermediate, under the name that the Python helper looks for
  gateway.json where the gateway is; change it if the agent runs on another machine`,
  options: {
    caps: {
      type: 'string',
      value: 'CAP,CAP',
      default: '',
      description: `llm.chat, mcp.tools.list, mcp.tools.call, http.get, or your own; none by default,
and an agent without any is refused everywhere`,
    },
    out: { type: 'string', value: 'DIR', description: 'where the identity goes (default agents/NAME)' },
    ...DOOR_OPTIONS,
  },
  notes: DOOR_NOTES,
  run: async ({ caps, out, ...door }, [name]) => {
    const capabilities = capabilitiesIn(caps)
    await enrollAgent({ name, capabilities, directory: out ?? `agents/${name}`, door })
  },
})

interface AgentEnrollment {
  readonly name: string
  readonly capabilities: readonly string[]
  readonly directory: string
  readonly door: AdminDoor
}

/** Enrolls an agent and writes its identity; prints where. Throws one sentence on a refusal. */
async function enrollAgent({ name, capabilities, directory, door }: AgentEnrollment): Promise<void> {
  const key = join(directory, 'agent.key')
  // Before anything is enrolled: the key is shown once, so there must be a place for it that holds no other.
  await mkdir(directory, { recursive: true, mode: 0o700 })
  if (existsSync(key))
    throw new Error(`${key} exists already: choose another NAME, or move that identity away`)
  const { agent, url } = await withAdministration(door, async (call) => {
    const enrolled = expectStatus(
      await call('POST', '/v1/admin/agents', { agent_name: name, capabilities }),
      201,
    )
    await writePrivateFile(key, String(enrolled.private_key_pem))
    await writePrivateFile(join(directory, 'agent.crt'), String(enrolled.cert_chain_pem))
    await writeTrust(call, directory)
    const path = `/v1/admin/agents/${String(enrolled.agent_id)}/dpop-jwk`
    expectStatus(await call('POST', path, publicDpopJwk(dpopKeyIn(directory))), 200)
    return { agent: enrolled, url: await clientUrl(call) }
  })
  await writeGateway(directory, url, String(agent.agent_id))
  print(...summary(url, agent, directory))
}

function summary(url: string, agent: Record<string, unknown>, directory: string): readonly string[] {
  const held =
    Array.isArray(agent.capabilities) && agent.capabilities.length > 0
      ? agent.capabilities.join(', ')
      : 'none'
  const [ca, cert, key] = ['org-ca.crt', 'agent.crt', 'agent.key'].map((file) =>
    shellWord(join(directory, file)),
  )
  const identity = shellWord(directory)
  return [
    `enrolled ${String(agent.agent_id)} (capabilities: ${held}) in ${directory}`,
    'try it:',
    `  curl --noproxy '*' --cacert ${ca} --cert ${cert} --key ${key} \\`,
    `    ${shellWord(`${url}/v1/chat/completions`)} -H 'content-type: application/json' \\`,
    `    -d '{"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}'`,
    `or let any client on this machine call as it, with DPoP: ${commandOf(`connect IDENTITY=${identity}`, `connect --identity ${identity}`)}`,
  ]
}
