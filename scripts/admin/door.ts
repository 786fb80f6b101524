import { existsSync } from 'node:fs'
import { Agent, type Dispatcher, request } from 'undici'
import { isObject } from '../../db/support/json.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { type Identity, readIdentity } from '../client/identity/identity.ts'
import { clientSession } from '../client/signing/session.ts'
import { GATEWAY_OPTION, type OptionValues, WrongUsage } from '../command.ts'
import { type AdminAnswer, type AdminCall, adminAnswer, type CallOptions } from './call.ts'
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
  const { cert, key, ca } = identity
  const bare = new Agent({ connect: { ca, cert, key, rejectUnauthorized: true }, allowH2: false })
  // A clock makes it a session of its own, which is closed with this work.
  const signed = clientSession(identity, { now: Date.now })
  let dispatcher: Dispatcher = bare
  const call: AdminCall = async (method, path, body, options) => {
    const answer = await ask(identity, dispatcher, method, path, body, options)
    if (!demandsProof(answer) || dispatcher === signed.dispatcher) return answer
    dispatcher = signed.dispatcher
    return ask(identity, dispatcher, method, path, body, options)
  }
  try {
    return await work(call)
  } finally {
    await Promise.all([bare.destroy(), signed.close()])
  }
}

const demandsProof = ({ status, body }: AdminAnswer): boolean =>
  status === 401 && isObject(body) && body.reason === 'proof_required'

async function ask(
  { url }: Identity,
  dispatcher: Dispatcher,
  method: string,
  path: string,
  body: unknown,
  { into, ifMatch }: CallOptions = {},
): Promise<AdminAnswer> {
  const answer = await request(url + path, {
    // Any method is one that undici sends.
    method: method as Dispatcher.HttpMethod,
    dispatcher,
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(ifMatch !== undefined && { 'if-match': ifMatch }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch((error: unknown) => {
    throw new Error(`${url} cannot be reached as this operator: ${reasonOf(error)}`, { cause: error })
  })
  if (into && answer.statusCode === 200) {
    await into(answer.body)
    return { status: 200, body: null }
  }
  return adminAnswer(answer.statusCode, answer.headers, await answer.body.text())
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
