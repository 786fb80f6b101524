import { command } from '../command.ts'

const HELP = `usage: sallyport connect --identity DIR [--port 8787] [--host 127.0.0.1] [--gateway URL]

The sidecar: plain http://127.0.0.1 in, mutual TLS, access token and DPoP proof out, for clients that cannot present a
certificate (Codex), or sign (curl, Python). Streams pass event by event; a broken one is never ended cleanly.

  --identity DIR  the agent's files, as \`sallyport agent\` writes them
  --port PORT     where to listen (default 8787); 0 picks one
  --host HOST     127.0.0.1, ::1 or localhost: nothing else, for whoever reaches the port speaks as the agent
  --gateway URL   in place of the URL in DIR/gateway.json

Prints {"msg":"ready","url":…} on standard output when it takes calls. SIGTERM and SIGINT let running calls end, 10 s at
most; the same signal again ends it at once. Other users of this machine can reach the port too: run it where there are
none. \`sallyport env\` prints what to tell the clients.
`

const GRACE_MS = 10_000

await command(HELP, async (args) => {
  const { parseArgs } = await import('node:util')
  const { values } = parseArgs({
    args: [...args],
    options: {
      identity: { type: 'string' },
      port: { type: 'string', default: '8787' },
      host: { type: 'string', default: '127.0.0.1' },
      gateway: { type: 'string' },
    },
  })
  if (!values.identity) throw new Error('say whose calls these are: --identity DIR')
  const { portOf } = await import('../port.ts')
  const port = portOf(values.port)
  const [{ readIdentity }, { sessionOf }, { startSidecar }] = await Promise.all([
    import('../client/identity.ts'),
    import('../client/signing/session.ts'),
    import('../client/sidecar.ts'),
  ])
  const identity = readIdentity(values.identity, values.gateway)
  const session = sessionOf(identity)
  const sidecar = await startSidecar(session, values.host, port)
  const { url } = sidecar
  const ready = { msg: 'ready', url, gateway: identity.url, agent_id: identity.agentId }
  process.stdout.write(`${JSON.stringify(ready)}\n`)
  process.stderr.write(
    `${url} is ${identity.url} as ${identity.agentId ?? values.identity} (base URL: ${url}/v1, Anthropic: ${url})\n`,
  )
  let stopping = false
  const stop = (): void => {
    if (stopping) process.exit(0)
    stopping = true
    void sidecar.close(GRACE_MS).then(() => session.close())
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
})
