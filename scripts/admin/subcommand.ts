import { type OptionValues, parseArguments, type VerbOptions } from '../command.ts'
import type { AdminCall } from './call.ts'
import { type AdminDoor, DOOR_OPTIONS } from './door.ts'

export type PrintLines = (...lines: readonly string[]) => void

export type SubcommandWork = (call: AdminCall, say: PrintLines) => Promise<void>

interface SubcommandDefinition<O extends VerbOptions> {
  /** The positional arguments, e.g. `NAME URL`. */
  readonly takes: string
  readonly about: string
  readonly options: O
  /** Throws one sentence if the arguments are wrong. */
  readonly work: (values: OptionValues<O>, positionals: readonly string[], door: AdminDoor) => SubcommandWork
}

export interface AdminSubcommand {
  readonly takes: string
  readonly about: string
  readonly options: VerbOptions
  /** Understands the arguments before anything is opened. Throws one sentence. */
  readonly understand: (args: readonly string[]) => {
    readonly door: AdminDoor
    readonly work: SubcommandWork
  }
}

/** Makes a subcommand of its definition. It takes the options of the door in addition to its own. */
export function subcommandOf<const O extends VerbOptions>(
  definition: SubcommandDefinition<O>,
): AdminSubcommand {
  const { takes, about, options, work } = definition
  const understand = (args: readonly string[]) => {
    const { values, positionals } = parseArguments({ ...options, ...DOOR_OPTIONS }, args, takes !== '')
    // The values of both; each sees its own.
    const door = values as AdminDoor
    return { door, work: work(values as OptionValues<O>, positionals, door) }
  }
  return { takes, about, options, understand }
}
