import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { startTied, type TiedProcess } from './tied.ts'

export type SharedEnvironment = Readonly<Record<string, string>>

export interface GatewayReplica {
  readonly name: string
  readonly url: string
  readonly dataDir: string
  readonly log: string
  readonly tied: TiedProcess
}

const MAIN = join(import.meta.dirname, '../../proxy/main.ts')

/**
 * Resolves when the gateway accepts connections. Its output goes to a file. Rejects with its own sentence.
 */
export async function startReplica(
  directory: string,
  name: string,
  shared: SharedEnvironment,
): Promise<GatewayReplica> {
  const dataDir = join(directory, name)
  const log = join(directory, `${name}.log`)
  const env = { ...shared, MCP_PROXY_LISTEN: '127.0.0.1:0', MCP_PROXY_DATA_DIR: dataDir }
  const { url, tied } = await startGatewayProcess(log, { ...ownEnvironment(), ...env })
  if (url !== null) return { name, url, dataDir, log, tied }
  throw new Error(`${name} did not start: ${complaintIn(tied.output())} (${log})`)
}

/** Starts a gateway. Its output goes to the file `log`. Resolves when it is ready, or with null if it has ended. */
export async function startGatewayProcess(
  log: string,
  env: NodeJS.ProcessEnv,
): Promise<{ readonly url: string | null; readonly tied: TiedProcess }> {
  const file = createWriteStream(log, { mode: 0o600 })
  const ready = Promise.withResolvers<string | null>()
  let rest = ''
  const tied = await startTied(process.execPath, ['--disable-sigusr1', '--max-semi-space-size=16', MAIN], {
    env,
    onOutput: (piece) => {
      file.write(piece)
      if (rest === READY) return
      const lines = (rest + piece).split('\n')
      rest = lines.pop() ?? ''
      const url = lines.map(readyUrl).find((found) => found !== null)
      if (url === undefined) return
      rest = READY
      ready.resolve(url)
    },
  })
  void tied.ended.then(() => {
    file.end()
    ready.resolve(null)
  })
  return { url: await ready.promise, tied }
}

/** No piece of a line: the ready line has been read. */
const READY = '\n'

/** Reads the line `{"msg":"ready","url":…}` (docs/protocol.md#ready-line); null for a line of its log. */
export function readyUrl(line: string): string | null {
  if (!line.startsWith('{"msg":"ready"')) return null
  const message: unknown = JSON.parse(line)
  const url = typeof message === 'object' && message !== null && 'url' in message ? message.url : null
  return typeof url === 'string' ? url : null
}

/** The gateway's own settings are the cluster's to choose, save those of its work on calls. */
const ITS_OWN =
  /^MCP_PROXY_(LISTEN|ADMIN_LISTEN|HOSTNAMES|PUBLIC_URLS|PROXY_PROTOCOL|DATA_DIR|DATABASE_URL|KEY_PASSPHRASE(_FILE)?)$/

const ownEnvironment = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !ITS_OWN.test(name)))

const complaintIn = (output: string): string =>
  output
    .trim()
    .split('\n')
    .findLast((line) => line.startsWith('sallyport: '))
    ?.slice('sallyport: '.length) ?? 'it ended without a message'
