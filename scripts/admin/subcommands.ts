import { messageOf } from '../../db/support/error-message.ts'
import { escapeHidden } from '../../proxy/visible.ts'
import { type CommandVerb, optionLines, UnfinishedChange, verbWithHelp } from '../command.ts'
import { printVerbatim } from '../print.ts'
import { DOOR_OPTIONS, withAdministration } from './door.ts'
import { printableLines } from './printable.ts'
import type { AdminSubcommand, PrintLines } from './subcommand.ts'

interface VerbGroupDefinition {
  /** The command, e.g. `mcp`. */
  readonly name: string
  /** The make command that does the same, e.g. `make mcp ARGS="VERB …"`. */
  readonly make?: string
  readonly about: string
  readonly verbs: Readonly<Record<string, AdminSubcommand>>
  readonly notes: string
  /** The command that says more, for a sentence. */
  readonly helpCommand: string
}

export interface VerbGroup extends CommandVerb {
  /** Understands the arguments, and only then opens the door. Throws one sentence. */
  readonly perform: (
    args: readonly string[],
    administer: typeof withAdministration,
    write: (text: string) => unknown,
  ) => Promise<void>
}

export function verbGroup(definition: VerbGroupDefinition): VerbGroup {
  const { verbs, helpCommand } = definition
  const perform: VerbGroup['perform'] = async ([name = '', ...args], administer, write) => {
    const subcommand = Object.hasOwn(verbs, name) ? verbs[name] : undefined
    if (!subcommand)
      throw new Error(`choose what to do: ${Object.keys(verbs).join(', ')}; ${helpCommand} explains them`)
    const { door, work } = subcommand.understand(args)
    const say: PrintLines = (...lines) => void write(printableLines(lines))
    try {
      await administer(door, (call) => work(call, say))
    } catch (error) {
      // The sentence may hold words of strangers.
      const sentence = escapeHidden(messageOf(error))
      throw error instanceof UnfinishedChange
        ? new UnfinishedChange(sentence, { cause: error })
        : new Error(sentence, { cause: error })
    }
  }
  const verb = verbWithHelp(helpOf(definition), async (args) => {
    await perform(args, withAdministration, printVerbatim)
    return 0
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
