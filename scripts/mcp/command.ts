import type { Call } from '../admin/call.ts'
import { type Say, type Subcommand, subcommandOf } from '../admin/subcommand.ts'
import { commandOf } from '../command.ts'
import { resourceNamed, type ShownResource } from './resources.ts'

/** Returns the command that does this with MCP servers, e.g. `make mcp ARGS="show files"`. */
export const mcpCommand = (words: string): string => commandOf(`mcp ARGS="${words}"`, `mcp ${words}`)

/** Makes the subcommand `name NAME`, which does one thing to one server. */
export function onServer(
  name: string,
  about: string,
  work: (call: Call, say: Say, resource: ShownResource) => Promise<void>,
): Subcommand {
  return subcommandOf({
    takes: 'NAME',
    about,
    options: {},
    work: (_, [server, ...rest]) => {
      if (!server || rest.length > 0) throw new Error(`say which server: ${mcpCommand(`${name} NAME`)}`)
      return async (call, say) => work(call, say, await resourceNamed(call, server))
    },
  })
}
