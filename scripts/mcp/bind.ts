import { messageOf } from '../../db/support/error-message.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { BINDINGS_PATH, fetchBindings, mcpCommand, type ResourceView, resourceNamed } from './resources.ts'

const CONFLICT = 409

export const bindCommand = withIds(
  'bind',
  'let agents, users or workloads reach it, each with the capabilities that it holds',
  bindTo,
)

/** `mcp unbind`: ends what {@link bindCommand} began. */
export const unbindCommand = withIds('unbind', 'takes effect on the next call', unbindFrom)

type WithIds = (
  call: AdminCall,
  say: PrintLines,
  resource: ResourceView,
  ids: readonly string[],
) => Promise<void>

function withIds(name: string, about: string, work: WithIds): AdminSubcommand {
  return subcommandOf({
    takes: 'NAME ID…',
    about,
    options: {},
    work: (_, [server, ...ids]) => {
      if (!server || ids.length === 0)
        throw new Error(`name the server and the principals: ${mcpCommand(`${name} NAME ID…`)}`)
      return async (call, say) => work(call, say, await resourceNamed(call, server), ids)
    },
  })
}

/** Binds principals one after the other, each printed. Throws at the first that is refused. */
export async function bindTo(
  call: AdminCall,
  say: PrintLines,
  { name, resource_id }: ResourceView,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const answer = await call('POST', BINDINGS_PATH, { agent_id: id, resource_id })
    if (answer.status === CONFLICT) throw new Error(`${id} is already bound to ${name}`)
    withPrincipalId(id, () => expectStatus(answer, 201))
    say(`${id} is bound to ${name}`)
  }
}

async function unbindFrom(
  call: AdminCall,
  say: PrintLines,
  resource: ResourceView,
  ids: readonly string[],
): Promise<void> {
  for (const id of ids) {
    const found = (await fetchBindings(call, resource)).find(({ agent_id: bound }) => bound === id)
    if (!found) throw new Error(`${id} is not bound to ${resource.name}`)
    const answer = await call('DELETE', `${BINDINGS_PATH}/${encodeURIComponent(found.binding_id)}`)
    withPrincipalId(id, () => expectStatus(answer, 204))
    say(`${id} is no longer bound to ${resource.name}`)
  }
}

/** Names the principal in the service's sentence, which names a field alone. */
function withPrincipalId(id: string, check: () => unknown): void {
  try {
    check()
  } catch (error) {
    throw new Error(`${id}: ${messageOf(error)}`, { cause: error })
  }
}
