import { existsSync } from 'node:fs'
import { readSettings } from '../../proxy/boot/settings.ts'
import { readIdentity } from '../client/identity/identity.ts'
import { GATEWAY_OPTION, type OptionValues, WrongUsage } from '../command.ts'
import { type AdminCall, adminAnswer } from './call.ts'
import { withControl } from './control.ts'

/** A reading of many tools takes a while. ms. */
const TIMEOUT_MS = 120_000

/**
 * Administers over the network by the identity in a directory. `url`: in place of the one in `gateway.json`.
 * Throws one sentence if the directory is not whole, or nobody answers.
 */
async function withOperator<T>(
  directory: string,
  url: string | undefined,
  work: (call: AdminCall) => Promise<T>,
): Promise<T> {
  if (!existsSync(directory)) throw new WrongUsage(`--as ${directory}: there is no such directory`)
  const identity = readIdentity(directory, url)
  // Only now: over the control socket no HTTP client has to be loaded.
  const { withIdentity } = await import('../client/gateway-request.ts')
  const unreachable = (error: unknown): Error =>
    new Error(`${identity.url} cannot be reached as this operator: ${reasonOf(error)}`, { cause: error })
  return withIdentity(identity, (ask) =>
    work(async (method, path, body, { into, ifMatch } = {}) => {
      const headers = ifMatch === undefined ? {} : { 'if-match': ifMatch }
      const asked = { method, headers, body, timeoutMs: TIMEOUT_MS, into, unreachable }
      const answer = await ask(path, asked)
      return adminAnswer(answer.status, answer.headers, answer.text)
    }),
  )
}

const reasonOf = (error: unknown): string =>
  error instanceof Error
    ? error.message || ('code' in error ? String(error.code) : error.name)
    : String(error)

export const DOOR_OPTIONS = {
  as: {
    type: 'string',
    value: 'DIR',
    description: `over the network, as the operator with that identity (default SALLYPORT_OPERATOR); without either,
over the control socket of this machine's gateway, or on its data directory if no gateway runs`,
  },
  ...GATEWAY_OPTION,
} as const

export type AdminDoor = OptionValues<typeof DOOR_OPTIONS>

export const DOOR_NOTES =
  'Works with a running gateway, without one, and with --as from any machine (docs/operators.md).'

/** The operator's directory that this command line speaks for; undefined: a user of this machine. */
export const operatorDirectory = ({ as }: AdminDoor): string | undefined =>
  as ?? (process.env.SALLYPORT_OPERATOR || undefined)

export async function withAdministration<T>(
  door: AdminDoor,
  work: (call: AdminCall) => Promise<T>,
): Promise<T> {
  const directory = operatorDirectory(door)
  if (directory !== undefined) return withOperator(directory, door.gateway, work)
  if (door.gateway !== undefined) throw new WrongUsage('--gateway needs --as DIR')
  return withControl(readSettings(process.env, process.cwd()), work)
}
