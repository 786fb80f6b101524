import { argumentsOf, commandOf, type Options, type Values } from '../command.ts'
import type { Call } from '../control-client.ts'
import { resourceNamed, type ShownResource } from './resources.ts'

/** Returns the command that does this with MCP servers, e.g. `make mcp ARGS="show files"`. */
export const mcpCommand = (words: string): string => commandOf(`mcp ARGS="${words}"`, `mcp ${words}`)

/** Tells the operator something, each text on a line of its own. */
export type Say = (...lines: readonly string[]) => void

/** The work that is left once the arguments were understood. */
export type Work = (call: Call, say: Say) => Promise<void>

interface Definition<O extends Options> {
  /** The positional arguments, e.g. `NAME URL`. */
  readonly takes: string
  /** For the help. */
  readonly about: string
  readonly options: O
  /** Throws one sentence where the arguments are wrong. */
  readonly work: (values: Values<O>, positionals: readonly string[]) => Work
}

/** A verb below `sallyport mcp`. */
export interface Subcommand {
  readonly takes: string
  readonly about: string
  readonly options: Options
  /** Understands the arguments before anything is opened. Throws one sentence. */
  readonly understand: (args: readonly string[]) => Work
}

/** Makes a subcommand of its definition. */
export function subcommandOf<const O extends Options>(definition: Definition<O>): Subcommand {
  const { takes, about, options, work } = definition
  const understand = (args: readonly string[]): Work => {
    const { values, positionals } = argumentsOf(options, args, takes !== '')
    return work(values, positionals)
  }
  return { takes, about, options, understand }
}

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
