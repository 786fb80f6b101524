import { parsePort, verbOf } from '../command.ts'

export const verb = verbOf({
  name: 'sallyport demo',
  make: 'make demo',
  about: `Shows the main job on this machine alone, with no key and no account: starts the gateway on a scratch directory in front
of a mock provider, enrolls two agents, makes allowed, denied and streamed calls with the OpenAI and Anthropic SDKs, grants
and revokes; puts two MCP servers behind it, calls their tools with the official client, and approves one that its server
has changed. Prints the audit rows and verifies their chain. Then the gateway keeps running for the curl lines that are printed,
until Ctrl-C; nothing is left behind.`,
  options: {
    once: { type: 'boolean', default: false, description: 'stop at the end instead of staying' },
    port: {
      type: 'string',
      value: 'PORT',
      description: 'where the gateway listens on 127.0.0.1 (default 9443, or any other while that is taken)',
    },
  },
  notes: 'Exit code: 0, or 1 with an error message if a step did not do what it should.',
  run: async ({ once, port }) => {
    // It shows the calls with programs that are no dependencies of the package.
    if (import.meta.filename.endsWith('.js')) throw new Error('demo runs from a checkout only: make demo')
    const wanted = { stay: !once, port: port === undefined ? null : parsePort(port) }
    const { runDemo } = await import('../demo/stage.ts')
    await runDemo(wanted)
  },
})
