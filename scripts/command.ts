import { parseArgs } from 'node:util'
import { messageOf } from '../db/support/error-message.ts'
import { print, printError, printNotice, printVerbatim } from './print.ts'

export interface VerbOption {
  readonly type: 'string' | 'boolean'
  readonly multiple?: boolean
  readonly default?: string | boolean
  /** The name of its value in the help, e.g. `DIR`. Given for strings. */
  readonly value?: string
  /** True: the usage line shows it without brackets. Does NOT make `parseArgs` ask for it. */
  readonly needed?: boolean
  readonly description: string
}

export type VerbOptions = Readonly<Record<string, VerbOption>>

export type OptionValues<O extends VerbOptions> = ReturnType<
  typeof parseArgs<{ readonly options: O; readonly allowPositionals: true }>
>['values']

/**
 * The positional arguments that a text such as `NAME URL`, `NAME [TOOL]` or `NAME ID…` names. Of a text that
 * is not known before it runs: any.
 */
export type NamedArguments<T extends string> = string extends T
  ? readonly string[]
  : T extends `${infer First} ${infer Rest}`
    ? readonly [...NamedArguments<First>, ...NamedArguments<Rest>]
    : T extends `[${string}]`
      ? readonly [string?]
      : T extends `${string}…`
        ? readonly string[]
        : T extends ''
          ? readonly []
          : readonly [string]

export interface ArgumentRules<T extends string> {
  /** The positional arguments, e.g. `NAME [TOOL]`. Empty: there are none. */
  readonly takes: T
  /** The sentence if other arguments are given than `takes` names. Without it they are not counted. */
  readonly misuse?: string
}

export interface ErrorReporting {
  /** The first word of each error. */
  readonly as: string
  /** The exit code if the arguments are wrong; the help then stands below the sentence. */
  readonly usage: number
  /** The exit code of every other failure. */
  readonly failed: number
}

export interface VerbDefinition<O extends VerbOptions, T extends string> extends Partial<ArgumentRules<T>> {
  /** The program and the verb, e.g. `sallyport agent`. */
  readonly name: string
  /** The usage lines after the name, in place of the one that is made from `takes` and `options`. */
  readonly usage?: readonly string[]
  readonly make?: string
  readonly about: string
  readonly options: O
  /** The text below the options in the help. */
  readonly notes?: string
  /** Default: one sentence after `sallyport: `, exit code 1. */
  readonly failing?: ErrorReporting
  /** Resolves to the exit code, or to nothing for 0. Throws one sentence. */
  readonly run: (values: OptionValues<O>, positionals: NamedArguments<T>) => Promise<number | undefined>
}

export interface CommandVerb {
  readonly help: string
  /** Resolves to the exit code. Tells errors on standard error; never rejects. */
  readonly run: (args: readonly string[]) => Promise<number>
}

/** Thrown if the arguments are wrong. */
export class WrongUsage extends Error {}

/** Thrown if a change has begun and is not done: its sentence is printed as a result is, with exit code 3. */
export class UnfinishedChange extends Error {}

const UNFINISHED = 3

export function verbOf<const O extends VerbOptions, const T extends string = ''>(
  definition: VerbDefinition<O, T>,
): CommandVerb {
  const { options, run } = definition
  const understood = async (args: readonly string[]) => {
    const { values, positionals } = parseArguments(options, args, definition)
    return run(values, positionals)
  }
  return verbWithHelp(helpOf(definition), understood, definition.failing)
}

/** Makes a verb that reads its arguments itself: it prints `help`, and reports the errors of `run`. */
export function verbWithHelp(
  help: string,
  run: (args: readonly string[]) => Promise<number | undefined>,
  failing?: ErrorReporting,
): CommandVerb {
  return {
    help,
    run: async (args) => {
      if (asksForHelp(args)) {
        printVerbatim(help)
        return 0
      }
      try {
        return (await run(args)) ?? 0
      } catch (error) {
        if (error instanceof UnfinishedChange) {
          print(error.message)
          return UNFINISHED
        }
        const { as = 'sallyport', usage = 1, failed = 1 } = failing ?? {}
        const wrong = error instanceof WrongUsage
        printError(as, error)
        if (wrong && failing) printNotice('', ...help.trimEnd().split('\n'))
        return wrong ? usage : failed
      }
    },
  }
}

/** Reads arguments as `parseArgs` does. Throws a {@link WrongUsage} with its sentence, or that of the rules. */
export function parseArguments<const O extends VerbOptions, T extends string>(
  options: O,
  args: readonly string[],
  { takes, misuse }: Partial<ArgumentRules<T>>,
): { readonly values: OptionValues<O>; readonly positionals: NamedArguments<T> } {
  const { values, positionals } = parsed(options, args, Boolean(takes))
  if (misuse !== undefined && !isNamed(positionals, takes ?? '')) throw new WrongUsage(misuse)
  // Counted on the line above.
  return { values, positionals: positionals as unknown as NamedArguments<T> }
}

function parsed<const O extends VerbOptions>(options: O, args: readonly string[], allowPositionals: boolean) {
  try {
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals })
    // The type does not depend on whether positionals are allowed.
    return { values: values as OptionValues<O>, positionals }
  } catch (error) {
    throw new WrongUsage(messageOf(error), { cause: error })
  }
}

/** Tells whether these are as many arguments as a text names, and none is empty. */
function isNamed(positionals: readonly string[], takes: string): boolean {
  const words = takes.split(' ').filter((word) => word !== '')
  const least = words.filter((word) => !word.startsWith('[')).length
  const most = takes.endsWith('…') ? Number.POSITIVE_INFINITY : words.length
  return positionals.length >= least && positionals.length <= most && !positionals.includes('')
}

function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  return args.slice(0, end < 0 ? args.length : end).some((arg) => arg === '--help' || arg === '-h')
}

function helpOf<O extends VerbOptions, T extends string>(definition: VerbDefinition<O, T>): string {
  const { name, about, options, notes, make, usage = [usageOf(definition)] } = definition
  const lines = usage.map((line, i) => `${i === 0 ? 'usage:' : '      '} ${`${name} ${line}`.trimEnd()}`)
  const byMake = make === undefined ? '' : `      (or: ${make})`
  const table = optionLines({ ...options, help: { type: 'boolean', description: 'print this' } }, '  ')
  const parts = [`${lines.join('\n')}${byMake}`, about, table.join('\n'), ...(notes ? [notes] : [])]
  return `${parts.join('\n\n')}\n`
}

function usageOf<O extends VerbOptions, T extends string>({ takes, options }: VerbDefinition<O, T>): string {
  const shown = Object.entries<VerbOption>(options).map(([name, option]) => {
    const flag = flagOf(name, option)
    return option.needed ? flag : `[${flag}]`
  })
  return [...(takes === undefined ? [] : [takes]), ...shown].join(' ')
}

export function optionLines(options: VerbOptions, indent: string): readonly string[] {
  const rows = Object.entries(options).map(([name, option]) => [flagOf(name, option), sayOf(option)] as const)
  const width = Math.max(...rows.map(([flag]) => flag.length)) + 2
  const next = `\n${indent}${' '.repeat(width)}`
  return rows.map(([flag, text]) => `${indent}${flag.padEnd(width)}${text.replaceAll('\n', next)}`)
}

const flagOf = (name: string, { value }: VerbOption): string =>
  value === undefined ? `--${name}` : `--${name} ${value}`

const sayOf = ({ description, default: usual }: VerbOption): string =>
  typeof usual === 'string' && usual !== '' ? `${description} (default ${usual})` : description

export const IS_PACKAGED = import.meta.filename.endsWith('.js')

/**
 * The command that its reader has: make's in a checkout, else the package's. `make`, `verb`: the words after
 * each.
 */
export const commandOf = (make: string, verb: string): string =>
  IS_PACKAGED ? `npx sallyport ${verb}` : `make ${make}`

export const JSON_OPTION = {
  json: { type: 'boolean', default: false, description: 'as the admin API says it' },
} as const

export const GATEWAY_OPTION = {
  gateway: { type: 'string', value: 'URL', description: 'instead of the URL in DIR/gateway.json' },
} as const

export const IDENTITY_OPTION = {
  identity: {
    type: 'string',
    value: 'DIR',
    needed: true,
    description: "the agent's files, as `sallyport agent` writes them",
  },
} as const

export const SIDECAR_OPTIONS = {
  port: { type: 'string', value: 'PORT', default: '8787', description: 'where the sidecar listens' },
  ...GATEWAY_OPTION,
} as const

/** The capabilities of a list with commas. Blanks around each, and empty places, say nothing. */
export const capabilitiesIn = (text: string): readonly string[] =>
  text.split(',').flatMap((token) => token.trim() || [])

/** A port number from the command line, 0 to 65535. Throws one sentence if it is none. */
export function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY
  if (port <= 65_535) return port
  throw new Error(`--port must be a number from 0 to 65535, got ${JSON.stringify(text)}`)
}
