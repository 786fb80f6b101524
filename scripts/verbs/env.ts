import { resolve } from 'node:path'
import { command } from '../command.ts'

const HELP = `usage: sallyport env [--identity DIR] [--port 8787] [--gateway URL] [--direct]

Prints what to tell the common clients, to be read, or sourced by a shell (. <(sallyport env)): OpenAI and Anthropic SDKs,
Claude Code, Codex, Python. The lines in force go through the sidecar (\`sallyport connect\`); the others stand beside as comments.

  --identity DIR  also show how to use the agent's certificate without the sidecar
  --port PORT     where the sidecar listens (default 8787)
  --gateway URL   in place of the URL in DIR/gateway.json
  --direct        the lines in force use the certificate and no sidecar (needs --identity)
`

await command(HELP, async (args) => {
  const { parseArgs } = await import('node:util')
  const { values } = parseArgs({
    args: [...args],
    options: {
      identity: { type: 'string' },
      port: { type: 'string', default: '8787' },
      gateway: { type: 'string' },
      direct: { type: 'boolean', default: false },
    },
  })
  if (values.direct && values.identity === undefined)
    throw new Error('--direct needs the certificate: --identity DIR')
  const [{ portOf }, { gatewayIn }, { exportLines }] = await Promise.all([
    import('../port.ts'),
    import('../client/identity.ts'),
    import('./export-lines.ts'),
  ])
  const directory = values.identity === undefined ? null : resolve(values.identity)
  const identity = directory === null ? null : { directory, ...gatewayIn(directory, values.gateway) }
  process.stdout.write(exportLines({ port: portOf(values.port), identity, direct: values.direct }))
})
