import type { AdminCall } from '../admin/call.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { commandOf } from '../command.ts'
import { type ResourceView, resourceNamed } from './resources.ts'

/** Returns the command that does this with MCP servers, e.g. `make mcp ARGS="show files"`. */
export const mcpCommand = (words: string): string => commandOf(`mcp ARGS="${words}"`, `mcp ${words}`)

/** Makes the subcommand `name NAME`, which does one thing to one server. */
export function onServer(
  name: string,
  about: string,
  work: (call: AdminCall, say: PrintLines, resource: ResourceView) => Promise<void>,
): AdminSubcommand {
  return subcommandOf({
    takes: 'NAME',
    about,
    options: {},
    work: (_, [server, ...rest]) => {
      if (!server || rest.length > 0) throw new Error(`name the server: ${mcpCommand(`${name} NAME`)}`)
      return async (call, say) => work(call, say, await resourceNamed(call, server))
    },
  })
}
