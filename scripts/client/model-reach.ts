import { Agent } from 'undici'
import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { commandOf } from '../command.ts'
import { askGateway, type GatewayAnswer, type GatewayRequest, withIdentity } from './gateway-request.ts'
import { type Identity, readIdentity } from './identity/identity.ts'
import { gatewayRefusal, jsonMembers } from './refusal.ts'

/** The APIs of the two clients that `sallyport env` knows. */
export type AgentApi = 'messages' | 'responses'

/** The way in which a gateway brings calls to a model. */
export interface ReachedModel {
  readonly model: string
  readonly wires: Readonly<Record<AgentApi, 'direct' | 'translated' | 'none'>>
  /** The losses that are accepted if a call is translated. */
  readonly lossy: readonly string[]
}

type Ask = (path: string, asked?: GatewayRequest) => Promise<GatewayAnswer>

/**
 * Asks a gateway how it reaches a model: as an identity, else through the sidecar of a port. Throws one sentence
 * if the identity is not whole, nobody answers, or the gateway has no such model.
 */
export async function reachedModel(
  model: string,
  way: { readonly directory: string | null; readonly gateway: string | undefined; readonly port: number },
): Promise<ReachedModel> {
  if (way.directory === null) return askSidecar(model, `http://127.0.0.1:${way.port}`)
  const identity = readIdentity(way.directory, way.gateway)
  return withIdentity(identity, (ask) => askModel(model, identity.url, unreachableAs(identity, ask)))
}

const unreachableAs =
  ({ url }: Identity, ask: Ask): Ask =>
  (path) =>
    ask(path, { unreachable: (error) => new Error(`no gateway answers at ${url}: ${reasonOf(error)}`) })

async function askSidecar(model: string, url: string): Promise<ReachedModel> {
  const dispatcher = new Agent()
  const unreachable = (): Error =>
    new Error(
      `no sidecar answers at ${url}: start one (${commandOf('connect IDENTITY=DIR', 'connect --identity DIR')}), or name the identity, --identity DIR`,
    )
  try {
    return await askModel(model, url, (path) => askGateway(dispatcher, url + path, { unreachable }))
  } finally {
    await dispatcher.destroy()
  }
}

/** Says why nobody answered. An error of several addresses has no message of its own. */
function reasonOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  return messageOf(error) || code
}

async function askModel(model: string, url: string, ask: Ask): Promise<ReachedModel> {
  const answer = await ask(`/v1/models/${model.split('/').map(encodeURIComponent).join('/')}`)
  const members = jsonMembers(answer.text)
  if (answer.status === 404 && members.reason === 'model_not_found')
    throw await unknownModelAt(model, url, ask)
  if (answer.status !== 200) throw gatewayRefusal(answer.status, answer.text)
  const { wires, lossy } = members
  if (!isObject(wires) || !isReach(wires.messages) || !isReach(wires.responses))
    throw new Error(`what answers at ${url} does not say how calls reach a model: is it an older gateway?`)
  const accepted: readonly unknown[] = Array.isArray(lossy) ? lossy : []
  return {
    model,
    wires: { messages: wires.messages, responses: wires.responses },
    lossy: accepted.filter((name) => typeof name === 'string'),
  }
}

const isReach = (value: unknown): value is ReachedModel['wires'][AgentApi] =>
  value === 'direct' || value === 'translated' || value === 'none'

/** The models that are named where another one was asked for. */
const MAX_NAMED = 12

async function unknownModelAt(model: string, url: string, ask: Ask): Promise<Error> {
  const { data } = jsonMembers((await ask('/v1/models')).text)
  const listed: readonly unknown[] = Array.isArray(data) ? data : []
  const ids = listed.flatMap((one) => (isObject(one) && typeof one.id === 'string' ? [one.id] : []))
  const more = ids.length > MAX_NAMED ? `, and ${ids.length - MAX_NAMED} more` : ''
  const named = ids.length === 0 ? 'It lists none.' : `It lists ${ids.slice(0, MAX_NAMED).join(', ')}${more}.`
  return new Error(`no provider of ${url} has the model ${JSON.stringify(model)}. ${named}`)
}
