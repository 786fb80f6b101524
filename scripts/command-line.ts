import type { CommandVerb } from './command.ts'
import { print, printError, printNotice, printVerbatim } from './print.ts'

type LoadedVerb = Pick<CommandVerb, 'run'>

/** A verb, or several by their names. Only the one that is asked for is loaded. */
type LoadVerb = () => Promise<
  { readonly verb: LoadedVerb } | { readonly verbs: Readonly<Record<string, LoadedVerb>> }
>

export type VerbRow = readonly [summary: string, load: LoadVerb]

type Verbs = Readonly<Record<string, VerbRow>>

const helpOf = (verbs: Verbs): string => `usage: sallyport VERB [options]

${Object.entries(verbs)
  .map(([name, [summary]]) => `  ${name.padEnd(20)}${summary}`)
  .join('\n')}

  sallyport VERB --help explains one; --version prints the version.
`

const WRONG_USAGE = 2

/** Runs the verb that the arguments name. `check` runs before the verb is loaded. */
export async function commandLine(
  verbs: Verbs,
  [name, ...args]: readonly string[],
  check: () => void = () => {},
): Promise<number> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    if (name === undefined) printNotice(...helpOf(verbs).trimEnd().split('\n'))
    else printVerbatim(helpOf(verbs))
    return name === undefined ? WRONG_USAGE : 0
  }
  if (name === '--version' || name === '-V') {
    const { VERSION } = await import('../proxy/boot/version.ts')
    print(VERSION)
    return 0
  }
  const row = Object.hasOwn(verbs, name) ? verbs[name] : undefined
  return row ? run(name, row, args, check) : unknownVerb(name, Object.keys(verbs))
}

async function run(
  name: string,
  [, load]: VerbRow,
  args: readonly string[],
  check: () => void,
): Promise<number> {
  try {
    check()
    const loaded = await load()
    const verb = 'verb' in loaded ? loaded.verb : loaded.verbs[name]
    if (!verb) throw new Error(`${name} is no verb of its file`)
    return await verb.run(args)
  } catch (error) {
    printError('sallyport', error)
    return 1
  }
}

async function unknownVerb(name: string, verbs: readonly string[]): Promise<number> {
  const { nearestName } = await import('../plugins/operator-files/nearest-name.ts')
  printNotice(
    `sallyport: ${JSON.stringify(name)} is not a verb: did you mean ${nearestName(name, verbs)}? --help lists them`,
  )
  return WRONG_USAGE
}
