import { IS_PACKAGED, parsePort, verbOf } from '../command.ts'

/** PostgreSQL, and the programs that show the calls, are no dependencies of the package. */
function requireCheckout(name: string): void {
  if (IS_PACKAGED) throw new Error(`${name} runs from a checkout only: make ${name}`)
}

const demo = verbOf({
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
    requireCheckout('demo')
    const wanted = { stay: !once, port: port === undefined ? null : parsePort(port) }
    const { runDemo } = await import('../demo/stage.ts')
    await runDemo(wanted)
  },
})

const cluster = verbOf({
  name: 'sallyport cluster',
  make: 'make cluster [REPLICAS=3] [PORT=9443]',
  about: `Starts several gateways on this machine, on a PostgreSQL of their own and behind HAProxy, and says what to do with them:
enroll an agent, call through the balancer, kill a replica, verify the ledger. It runs until Ctrl-C, which ends all of
it in order. Everything that it has made is kept, and the next start uses it again.`,
  options: {
    replicas: { type: 'string', value: 'N', default: '3', description: 'how many gateways, 1 to 16' },
    port: {
      type: 'string',
      value: 'PORT',
      default: '9443',
      description: 'where HAProxy listens on 127.0.0.1, 0 for any; the replicas pick theirs',
    },
    data: {
      type: 'string',
      value: 'DIR',
      default: 'data/cluster',
      description: 'where everything is kept',
    },
  },
  notes: `Started by root, PostgreSQL runs as nobody, and its files lie in /var/tmp with a link in DIR if nobody may not look into DIR.
Without HAProxy the replicas are there by their own ports. Operators' files and provider keys are those of make start.
Exit code: 0 after Ctrl-C, 1 with an error message if it could not start or continue.`,
  run: async ({ replicas, port, data }) => {
    requireCheckout('cluster')
    const wanted = { replicas: countOf(replicas), port: parsePort(port), directory: data }
    const { runCluster } = await import('../cluster/stage.ts')
    await runCluster(wanted)
  },
})

function countOf(text: string): number {
  const count = /^\d{1,2}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= 16) return count
  throw new Error(`--replicas must be a number from 1 to 16, got ${JSON.stringify(text)}`)
}

export const verbs = { demo, cluster }
