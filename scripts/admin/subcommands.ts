import { messageOf } from '../../db/support/error-message.ts'
import { visible } from '../../proxy/visible.ts'
import { optionLines, Unfinished, type Verb, verbWithHelp } from '../command.ts'
import { printOurs } from '../print.ts'
import { administering, DOOR } from './door.ts'
import { printable } from './printable.ts'
import type { Say, Subcommand } from './subcommand.ts'

/** A verb with verbs below it. */
interface Definition {
  /** Its command, e.g. `mcp`. */
  readonly name: string
  /** The make command that does the same, e.g. `make mcp ARGS="VERB …"`. */
  readonly make?: string
  readonly about: string
  readonly verbs: Readonly<Record<string, Subcommand>>
  /** The text at the end of the help. */
  readonly notes: string
  /** The command that says more, for a sentence. */
  readonly helpCommand: string
}

/** A verb, and its work for whoever has a door and an end of their own. */
export interface Subcommands extends Verb {
  /** Understands the arguments, and only then opens the door. Throws one sentence. */
  readonly perform: (
    args: readonly string[],
    administer: typeof administering,
    write: (text: string) => unknown,
  ) => Promise<void>
}

/** Makes the verb of verbs that administer, of its definition. */
export function subcommandsOf(definition: Definition): Subcommands {
  const { verbs, helpCommand } = definition
  const perform: Subcommands['perform'] = async ([name = '', ...args], administer, write) => {
    const subcommand = Object.hasOwn(verbs, name) ? verbs[name] : undefined
    if (!subcommand)
      throw new Error(`say what to do: ${Object.keys(verbs).join(', ')}; ${helpCommand} says more`)
    const { door, work } = subcommand.understand(args)
    const say: Say = (...lines) => void write(printable(lines))
    try {
      await administer(door, (call) => work(call, say))
    } catch (error) {
      // The sentence may hold words of strangers.
      const sentence = visible(messageOf(error))
      throw error instanceof Unfinished
        ? new Unfinished(sentence, { cause: error })
        : new Error(sentence, { cause: error })
    }
  }
  const verb = verbWithHelp(helpOf(definition), async (args) => {
    await perform(args, administering, printOurs)
    return 0
  })
  return { ...verb, perform }
}

const COLUMN = 23

const helpOf = ({ name, make, about, verbs, notes }: Definition): string => `usage: sallyport ${name} VERB …${
  make === undefined ? '' : `      (or: ${make})`
}

${about}

${Object.entries(verbs).flatMap(helpLines).join('\n')}

Each takes also:
${optionLines(DOOR, '    ').join('\n')}

${notes}
Exit code: 0, 3 where a change waits for a second operator, or 1 with one sentence.
`

function helpLines([name, { takes, about, options }]: readonly [string, Subcommand]): readonly string[] {
  const head = `  ${name} ${takes}`.padEnd(COLUMN)
  const more = Object.keys(options).length > 0 ? optionLines(options, '    ') : []
  return [
    `${head}${head.endsWith(' ') ? '' : ' '}${about.replaceAll('\n', `\n${' '.repeat(COLUMN)}`)}`,
    ...more,
  ]
}
