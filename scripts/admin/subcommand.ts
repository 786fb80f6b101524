import { argumentsOf, type Options, type Values } from '../command.ts'
import type { Call } from './call.ts'
import { DOOR, type Door } from './door.ts'

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
  readonly work: (values: Values<O>, positionals: readonly string[], door: Door) => Work
}

/** A verb below a verb that administers. */
export interface Subcommand {
  readonly takes: string
  readonly about: string
  readonly options: Options
  /** Understands the arguments before anything is opened. Throws one sentence. */
  readonly understand: (args: readonly string[]) => { readonly door: Door; readonly work: Work }
}

/** Makes a subcommand of its definition. It takes the options of the door beside its own. */
export function subcommandOf<const O extends Options>(definition: Definition<O>): Subcommand {
  const { takes, about, options, work } = definition
  const understand = (args: readonly string[]) => {
    const { values, positionals } = argumentsOf({ ...options, ...DOOR }, args, takes !== '')
    // The values of both; each sees its own.
    const door = values as Door
    return { door, work: work(values as Values<O>, positionals, door) }
  }
  return { takes, about, options, understand }
}
