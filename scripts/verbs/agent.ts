import { parseArgs } from 'node:util'
import { command } from '../command.ts'

const HELP = `usage: sallyport agent NAME [--caps CAP,CAP] [--out DIR]      (or: make agent NAME=… [CAPS=…])

Enrolls an agent with a minted certificate and writes its identity into DIR (default: agents/NAME), readable by you alone:
  agent.crt    the certificate, leaf and intermediate
  agent.key    the private key; the service keeps no copy
  dpop.jwk     the private key that signs its DPoP proofs; the service knows the public one
  org-ca.crt   what the agent trusts the gateway by
  gateway.json where the gateway is; change it where the agent lives on another machine
Works beside a running gateway and without one. Capabilities: llm.chat, mcp.tools.list, mcp.tools.call, http.get, or your
own; none are held by default, and an agent that holds none is refused everywhere.
`

await command(HELP, async (args) => {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { caps: { type: 'string', default: '' }, out: { type: 'string' } },
  })
  const [name, ...rest] = positionals
  if (!name || rest.length > 0) throw new Error('say one name: make agent NAME=my-agent CAPS=llm.chat')
  const { enrollAgent } = await import('./enroll-agent.ts')
  const capabilities = values.caps
    .split(',')
    .map((token) => token.trim())
    .filter((token) => token !== '')
  await enrollAgent({ name, capabilities, directory: values.out ?? `agents/${name}` })
})
