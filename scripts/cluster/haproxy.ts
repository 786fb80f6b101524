import { accessSync, constants } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { startTied, type TiedProcess } from './tied.ts'

export interface BalancerOptions {
  /** Gets the configuration and the socket. Short: a Unix socket's path has 97 bytes at most here. */
  readonly directory: string
  /** On 127.0.0.1. */
  readonly port: number
  /** `host:port` of each server that it balances. */
  readonly servers: readonly string[]
  /** True: each connection begins with a header of the PROXY protocol, version 2. */
  readonly proxyProtocol: boolean
  /** The check of a server: the port is open, or `GET /ready` over TLS is 200. */
  readonly check: 'tcp' | 'ready'
  /** More words for the line of each server, e.g. `source 127.0.0.2`. */
  readonly words?: string
  /**
   * The time between two looks, and the most to connect, TLS included. ms. Two failures take a server out,
   * one success brings it back.
   */
  readonly checkMs: number
}

export interface ServerState {
  /** `s1` for the first of the servers. */
  readonly name: string
  readonly up: boolean
  /** False until its first look at it: at its start it takes every server for one that can serve. */
  readonly checked: boolean
  /** The connections that it was ever given. */
  readonly sessions: number
}

export interface ClusterBalancer {
  readonly port: number
  readonly tied: TiedProcess
  readonly servers: () => Promise<readonly ServerState[]>
}

const READY_MS = 10_000
const PLACES: readonly string[] = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

/** The path of this machine's HAProxy; null if there is none. */
export const haproxyProgram = (path?: string, places?: readonly string[]): string | null =>
  installedProgram('haproxy', path, places)

/** The file of a program that is installed on this machine; null if none is. */
export function installedProgram(
  name: string,
  path = process.env.PATH ?? '',
  places: readonly string[] = PLACES,
): string | null {
  // Programs in sbin are often out of an ordinary user's PATH, and can be run all the same.
  const files = [...path.split(':'), ...places].map((directory) => join(directory, name))
  return files.find(isProgram) ?? null
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

export function balancerText(options: BalancerOptions): string {
  const { directory, port, servers, proxyProtocol, check, checkMs, words = '' } = options
  const every = [
    'check',
    ...(check === 'ready' ? ['check-ssl verify none'] : []),
    `inter ${checkMs}ms fall 2 rise 1`,
    ...(proxyProtocol ? ['send-proxy-v2'] : []),
    words,
  ].join(' ')
  return `global
  # The kernel would let a second process share the port.
  noreuseport
  stats socket "${join(directory, 's')}" mode 600 level admin

defaults
  mode tcp
  balance roundrobin
  # A connection that one server does not take goes to another; one that has begun never does.
  retries 3
  option redispatch 1
  timeout connect 1s
  timeout check 1s
  timeout client 1h
  timeout server 1h

frontend door
  bind 127.0.0.1:${port}
  default_backend gateways

backend gateways
${check === 'ready' ? READY : ''}${servers.map((server, n) => `  server s${n + 1} ${server} ${every}\n`).join('')}`
}

const READY = `  option httpchk
  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost
  http-check expect status 200
`

/** Starts it, and waits until it accepts connections. Rejects with its own words if it does not start. */
export async function startBalancer(program: string, options: BalancerOptions): Promise<ClusterBalancer> {
  const { directory, port } = options
  const file = join(directory, 'haproxy.cfg')
  await writeFile(file, balancerText(options))
  const tied = await startTied(program, ['-db', '-f', file], { env: { PATH: process.env.PATH } })
  const servers = async (): Promise<readonly ServerState[]> =>
    statesIn(await askSocket(join(directory, 's'), 'show stat'))
  const ready = waitForAnswer(servers)
  const early = tied.ended.then(({ output }) => {
    throw new Error(`haproxy ended: ${output}`)
  })
  await Promise.race([ready, early])
  // Heard above while it started; from here on its end is reported to those who wait for it.
  early.catch(() => {})
  return { port, tied, servers }
}

/** It has bound its port before it opens its socket. */
async function waitForAnswer(servers: () => Promise<unknown>): Promise<void> {
  const until = performance.now() + READY_MS
  for (;;) {
    try {
      await servers()
      return
    } catch (error) {
      if (performance.now() > until) throw error
      await sleep(20)
    }
  }
}

function askSocket(path: string, command: string): Promise<string> {
  const socket = connect(path)
  socket.end(`${command}\n`)
  return text(socket)
}

/** Reads the CSV of `show stat`: a header that begins with a hash, a line for each server. */
function statesIn(csv: string): readonly ServerState[] {
  const [header = '', ...lines] = csv.trim().split('\n')
  const columns = header.replace('# ', '').split(',')
  const rows = lines.map((line) => {
    const values = line.split(',')
    return (column: string): string => values[columns.indexOf(column)] ?? ''
  })
  return rows
    .filter((of) => of('pxname') === 'gateways' && /^s\d+$/.test(of('svname')))
    .map((of) => ({
      name: of('svname'),
      up: of('status').startsWith('UP'),
      checked: /OK|ERR|TOUT|STS|CON|RSP/.test(of('check_status')),
      sessions: Number(of('stot')),
    }))
}
