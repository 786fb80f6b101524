import { cp, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readSettings } from '../../../proxy/boot/settings.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import type { Children, Start } from './children.ts'
import { enrollAgents, type Ground, operatorsEnv } from './ground.ts'

/** A start whose core is not yet chosen. */
export type Prepared = Omit<Start, 'core'>

/** Prepares a Node process that says when it is ready. `name`: of its log too. */
export const node = (name: string, ...args: readonly string[]): Prepared => ({
  name: name.replace(':', '-'),
  command: process.execPath,
  args,
  ready: 'line',
  // By it a child notices that nobody is left who would end it; the gateway does not look.
  ipc: true,
})

/** Prepares a gateway of the ground's checkout as `npm start` has it, on a data directory of its own. */
export async function gatewayStart(ground: Ground, name: string): Promise<Prepared> {
  return asStarted(ground.root, name, await ownData(ground, name))
}

/** Copies the data directory: no subject pays for the rows of another. */
export async function ownData(
  { directory, dataDir, env }: Ground,
  name: string,
): Promise<Record<string, string>> {
  const own = join(directory, `data-${name}`)
  await cp(dataDir, own, { recursive: true, errorOnExist: true, force: false })
  return { ...env, MCP_PROXY_DATA_DIR: own }
}

/** Prepares a gateway of no interest, so that those after it find everything compiled. */
export const startForCache = (ground: Ground): Promise<Prepared> => gatewayStart(ground, 'first-gateway')

/**
 * Lays the ground of another checkout's gateway in `directory`: the CA, the database and the agents are made by
 * that gateway itself, over its control socket. It has ended when this resolves.
 */
export async function layGroundOf(
  root: string,
  { directory, upstreamPort, children }: Place,
): Promise<Ground> {
  const env = await operatorsEnv(directory, upstreamPort)
  const child = await children.start({ ...(await asStarted(root, 'other-ground', env)), core: null })
  const settings = readSettings(env, directory)
  const agents = await withControl(settings, (call) => enrollAgents(call, upstreamPort))
  await child.stop()
  return { directory, root, env, dataDir: settings.dataDir, ...agents }
}

interface Place {
  readonly directory: string
  readonly upstreamPort: number
  readonly children: Children
}

/** Tells a checkout's version, as its package says it. */
export async function versionOf(root: string): Promise<string> {
  return (await manifest(root)).version
}

/** Reads a checkout's `npm start`: variables, then Node with its arguments, the files by their whole paths. */
export async function asStarted(root: string, name: string, env: Ground['env']): Promise<Prepared> {
  const { start } = (await manifest(root)).scripts
  const words = start.split(' ')
  const command = words.indexOf('node')
  if (command < 0) throw new Error(`npm start of ${root} must run node, got "${start}"`)
  const set = words.slice(0, command).map((word): [string, string] => {
    const [, variable = '', value = ''] = /^(\w+)=(.*)$/.exec(word) ?? []
    return [variable, value]
  })
  const args = words.slice(command + 1).map((word) => (word.endsWith('.ts') ? join(root, word) : word))
  return { ...node(name, ...args), env: { ...Object.fromEntries(set), ...env } }
}

interface Manifest {
  readonly version: string
  readonly scripts: { readonly start: string }
}

async function manifest(root: string): Promise<Manifest> {
  // A checkout of this project: its package has both.
  return JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as Manifest
}
