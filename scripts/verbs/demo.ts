import { command } from '../command.ts'

const HELP = `usage: sallyport demo [--once] [--port PORT]      (or: make demo)

Shows the main job on this machine alone, with no key and no account: starts the gateway on a scratch directory in front
of a mock provider, enrolls two agents, makes allowed, denied and streamed calls with the OpenAI and Anthropic SDKs, grants
and revokes; puts two MCP servers behind it, calls their tools with the official client, and approves one that its server
has changed. Prints the audit rows and verifies their chain. Then the gateway stays for the curl lines that are printed,
until Ctrl-C; nothing is left behind.

  --once       stop at the end instead of staying
  --port PORT  where the gateway listens on 127.0.0.1 (default: 9443, or any other while that is taken)

Exit code: 0, or 1 with one sentence where a step did not do what it should.
`

await command(HELP, async (args) => {
  const { parseArgs } = await import('node:util')
  const { values } = parseArgs({
    args: [...args],
    options: { once: { type: 'boolean', default: false }, port: { type: 'string' } },
  })
  if (values.port !== undefined && !/^\d{1,5}$/.test(values.port)) throw new Error('--port must be a number')
  const { demo } = await import('../demo/stage.ts')
  await demo({ stay: !values.once, port: values.port === undefined ? null : Number(values.port) })
})
