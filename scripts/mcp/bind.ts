import { messageOf } from '../../db/error-message.ts'
import { type Call, expect } from '../control-client.ts'
import { BINDINGS, bindingsOf, type Say, type ShownResource } from './resources.ts'

const CONFLICT = 409

/** Binds principals to a server, one after the other, each said as it is done. Throws at the first that is refused. */
export async function bindTo(
  call: Call,
  say: Say,
  { name, resource_id }: ShownResource,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const answer = await call('POST', BINDINGS, { agent_id: id, resource_id })
    if (answer.status === CONFLICT) throw new Error(`${id} is bound to ${name} already`)
    about(id, () => expect(answer, 201))
    say(`${id} is bound to ${name}`)
  }
}

/** Ends bindings, as {@link bindTo} makes them. */
export async function unbindFrom(
  call: Call,
  say: Say,
  resource: ShownResource,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const found = (await bindingsOf(call, resource)).find(({ agent_id: bound }) => bound === id)
    if (!found) throw new Error(`${id} is not bound to ${resource.name}`)
    const answer = await call('DELETE', `${BINDINGS}/${encodeURIComponent(found.binding_id)}`)
    about(id, () => expect(answer, 204))
    say(`${id} is not bound to ${resource.name} any more`)
  }
}

/** The service's sentence names a field; of several principals it must say whose. */
function about(id: string, check: () => unknown): void {
  try {
    check()
  } catch (error) {
    throw new Error(`${id}: ${messageOf(error)}`, { cause: error })
  }
}
