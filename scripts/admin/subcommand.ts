import { messageOf } from '../../db/support/error-message.ts'
import { escapeHidden } from '../../proxy/visible.ts'
import {
  type ArgumentRules,
  type CommandVerb,
  commandOf,
  type NamedArguments,
  type OptionValues,
  optionLines,
  parseArguments,
  UnfinishedChange,
  type VerbOptions,
  verbWithHelp,
} from '../command.ts'
import { printableLines, printVerbatim } from '../print.ts'
import type { AdminCall } from './call.ts'
import { type AdminDoor, DOOR_OPTIONS, withAdministration } from './door.ts'

export type PrintLines = (...lines: readonly string[]) => void

export type SubcommandWork = (call: AdminCall, say: PrintLines) => Promise<unknown>

interface SubcommandDefinition<T extends string, O extends VerbOptions, Checked> extends ArgumentRules<T> {
  readonly about: string
  readonly options?: O
  /** Throws one sentence if the values are wrong, before anything is opened. */
  readonly check?: (values: OptionValues<O>, args: NamedArguments<T>) => Checked
  /** Resolves to the exit code if it is a number; else that is 0. */
  readonly run: (given: SubcommandInput<T, O, Checked>) => Promise<unknown>
}

interface SubcommandInput<T extends string, O extends VerbOptions, Checked> {
  readonly call: AdminCall
  readonly say: PrintLines
  readonly values: OptionValues<O>
  readonly args: NamedArguments<T>
  readonly door: AdminDoor
  /** The result of `check`. */
  readonly checked: Checked
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
export function subcommandOf<
  const T extends string,
  const O extends VerbOptions = Record<never, never>,
  Checked = undefined,
>(definition: SubcommandDefinition<T, O, Checked>): AdminSubcommand {
  // Without any, `O` has none.
  const { takes, about, options = {} as O, check, run } = definition
  const understand = (given: readonly string[]) => {
    const parsed = parseArguments({ ...options, ...DOOR_OPTIONS }, given, definition)
    // The values of both; each sees its own.
    const [door, values] = [parsed.values as AdminDoor, parsed.values as OptionValues<O>]
    const args = parsed.positionals
    // Without a check there is nothing that was checked.
    const checked = check?.(values, args) as Checked
    const work: SubcommandWork = (call, say) => run({ call, say, values, args, door, checked })
    return { door, work }
  }
  return { takes, about, options, understand }
}

interface VerbGroupDefinition {
  /** The command, e.g. `mcp`. */
  readonly name: string
  /** The make command that does the same, e.g. `make mcp ARGS="VERB …"`. */
  readonly make?: string
  readonly about: string
  readonly verbs: Readonly<Record<string, AdminSubcommand>>
  /** The verb that is meant if none is named. Absent: one must be. */
  readonly usual?: string
  readonly notes: string
  /** The command that says more, for a sentence. Default: its own `--help`. */
  readonly helpCommand?: string
}

interface VerbGroup extends CommandVerb {
  /** Understands the arguments, and only then opens the door. Throws one sentence. */
  readonly perform: (
    args: readonly string[],
    administer: typeof withAdministration,
    write: (text: string) => unknown,
  ) => Promise<unknown>
}

export function verbGroup(definition: VerbGroupDefinition): VerbGroup {
  const { name: group, verbs, usual } = definition
  const { helpCommand = commandOf(`sallyport ARGS="${group} --help"`, `${group} --help`) } = definition
  const perform: VerbGroup['perform'] = async (given, administer, write) => {
    const isUsual = usual !== undefined && (given[0] ?? '-').startsWith('-')
    const [name = '', ...args] = isUsual ? [usual, ...given] : given
    const subcommand = Object.hasOwn(verbs, name) ? verbs[name] : undefined
    if (!subcommand)
      throw new Error(`choose what to do: ${Object.keys(verbs).join(', ')}; ${helpCommand} explains them`)
    const { door, work } = subcommand.understand(args)
    const say: PrintLines = (...lines) => void write(printableLines(lines))
    try {
      return await administer(door, (call) => work(call, say))
    } catch (error) {
      // The sentence may hold words of strangers.
      const sentence = escapeHidden(messageOf(error))
      throw error instanceof UnfinishedChange
        ? new UnfinishedChange(sentence, { cause: error })
        : new Error(sentence, { cause: error })
    }
  }
  const verb = verbWithHelp(helpOf(definition), async (args) => {
    const code = await perform(args, withAdministration, printVerbatim)
    return typeof code === 'number' ? code : 0
  })
  return { ...verb, perform }
}

const COLUMN = 23

const helpOf = ({
  name,
  make,
  about,
  verbs,
  notes,
}: VerbGroupDefinition): string => `usage: sallyport ${name} VERB …${
  make === undefined ? '' : `      (or: ${make})`
}

${about}

${Object.entries(verbs).flatMap(helpLines).join('\n')}

Each also takes:
${optionLines(DOOR_OPTIONS, '    ').join('\n')}

${notes}
Exit code: 0, 3 if a change is waiting for a second operator, or 1 with an error message.
`

function helpLines([name, { takes, about, options }]: readonly [string, AdminSubcommand]): readonly string[] {
  const head = `  ${name} ${takes}`.padEnd(COLUMN)
  const more = Object.keys(options).length > 0 ? optionLines(options, '    ') : []
  return [
    `${head}${head.endsWith(' ') ? '' : ' '}${about.replaceAll('\n', `\n${' '.repeat(COLUMN)}`)}`,
    ...more,
  ]
}
