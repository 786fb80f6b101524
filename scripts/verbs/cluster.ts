import { IS_PACKAGED, parsePort, verbOf } from '../command.ts'

export const verb = verbOf({
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
    // PostgreSQL is no dependency of the package.
    if (IS_PACKAGED) throw new Error('cluster runs from a checkout only: make cluster')
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
