import { relative } from 'node:path'
import type { GatewayReplica } from './replica.ts'

interface ClusterView {
  readonly directory: string
  readonly replicas: readonly GatewayReplica[]
  readonly databaseUrl: string
  /** The balancer's. Null: there is none. */
  readonly port: number | null
}

/** Returns what to do with a cluster that runs, as lines for another terminal. */
export function clusterGuide({ directory, replicas, databaseUrl, port }: ClusterView): string {
  const [first] = replicas
  const place = shown(directory)
  const url = port === null ? (first?.url ?? '') : `https://localhost:${port}`
  const control = `MCP_PROXY_DATA_DIR=${place}/${first?.name}`
  const identity = 'agents/cluster-agent'
  return `
${port === null ? withoutBalancer(replicas) : `HAProxy is in front of ${replicas.length} replicas: ${url}`}

In another terminal:

  # enroll an agent, by any replica: all of them know it with its next call
  ${control} make agent NAME=cluster-agent CAPS=llm.chat

  # call as it${port === null ? '' : ', through the balancer: each connection goes to another replica'}
  curl --cacert ${identity}/org-ca.crt --cert ${identity}/agent.crt --key ${identity}/agent.key ${url}/v1/models

  # kill a replica: what it was at fails, and the same call goes on at the others
  kill -9 ${first?.tied.pid}

  # verify the ledger, with a stream of each replica
  make verify-audit FILE="${databaseUrl}"

Logs: ${place}/replica-*.log. Everything is kept in ${place}, and the next start goes on with it.
Ctrl-C ends all of it.`
}

function withoutBalancer(replicas: readonly GatewayReplica[]): string {
  return `There is no HAProxy on this machine (install it, e.g. apt-get install haproxy or brew install haproxy, and start again),
so nothing is in front of the replicas:
${replicas.map(({ name, url }) => `  ${name}  ${url}`).join('\n')}`
}

/** As short as it can be said from here. */
function shown(directory: string): string {
  const path = relative(process.cwd(), directory)
  return path.startsWith('..') || path === '' ? directory : path
}
