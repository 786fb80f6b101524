import { createHash } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { withDeadline } from '../deadline.ts'
import type { CallSummary, CapabilityDemand, DpopProof, Principal } from '../facts.ts'
import type { CallPermit } from '../permit.ts'
import type { Arrival, CallSettlement, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { errorCode, isWorldWritable } from './secret-file.ts'

export interface CheckFacts {
  readonly principal: Principal
  readonly proof: DpopProof | null
  readonly demand: CapabilityDemand
  readonly call: CallSummary
  readonly granted: CallPermit
}

/** An operator's own check, as the pipeline runs it between the capability gate and the record. */
export type CheckPlugin = Plugin<Arrival & CheckFacts, object>

/** The facts that an operator's module is given. Copies. Never headers, body or answer. */
export type OperatorFacts = Pick<Arrival, 'id' | 'at' | 'method' | 'path' | 'remoteAddress'> &
  Partial<Omit<CheckFacts, 'granted'> & { readonly granted: CapabilityDemand }>

export interface OperatorPlugin {
  readonly name: string
  readonly needs: readonly string[]
  /** Throws a `Refusal` to refuse the call; whatever it returns is ignored. */
  readonly admit: (facts: OperatorFacts) => unknown
  /** Called once when an admitted call has ended. Nobody waits for it. An error is logged and counted. */
  readonly settled?: (facts: OperatorFacts, settlement: CallSettlement) => unknown
}

export interface OperatorTools {
  readonly Refusal: typeof Refusal
}

export interface LoadedModule {
  readonly check: CheckPlugin
  readonly needs: readonly string[]
  /** Hex SHA-256 of the module's file: not of what it imports. */
  readonly digest: string
}

interface ModuleSource {
  /** The path in the operator's file: absolute, or relative to `directory`. */
  readonly path: string
  readonly directory: string
  readonly options: Readonly<Record<string, unknown>>
  /** The time that `admit` may take. ms. Default 1000. */
  readonly admitDeadline?: number
  /** The time that the module may take to load and to make its plugin. ms. Default 10 000. */
  readonly loadDeadline?: number
}

const FACTS: readonly (keyof CheckFacts)[] = ['principal', 'proof', 'demand', 'call', 'granted']
const NAME = /^[a-z][a-z0-9_-]{0,63}$/

/**
 * Loads an operator's own check: a .ts or .js file that exports `plugin(options)`
 * (docs/decisions/018-own-checks-only-refuse.md). The value of `admit` is ignored, and anything it throws
 * that is not a Refusal, or not settling in time, refuses with `plugin_failed`. A changed file is loaded
 * again. Throws an Error with one sentence if the module cannot be used. A file or directory that everybody
 * may write to is refused (docs/threats.md#threat-34). Does NOT contain the module: it runs with the rights
 * of the gateway.
 */
export async function loadOperatorModule(source: ModuleSource): Promise<LoadedModule> {
  const { path, directory, options, admitDeadline = 1_000, loadDeadline = 10_000 } = source
  const file = resolve(directory, path)
  const digest = await digestOf(file, path)
  const late = () => new Error(`${path} did not load within ${loadDeadline} ms`)
  const made = await withDeadline({ ms: loadDeadline, late }, () => make(file, path, digest, options))
  const plugin = validate(made, path)
  return { check: checkOf(plugin, admitDeadline), needs: plugin.needs, digest }
}

async function digestOf(file: string, path: string): Promise<string> {
  if (!/\.[jt]s$/.test(file)) throw new Error(`${path} must be a .ts or .js file`)
  try {
    const modes = await Promise.all([file, dirname(file)].map(async (name) => (await stat(name)).mode))
    if (!modes.some(isWorldWritable)) {
      return createHash('sha256')
        .update(await readFile(file))
        .digest('hex')
    }
  } catch (error) {
    throw new Error(`module ${file} cannot be read (${errorCode(error)})`, { cause: error })
  }
  throw new Error(`everybody may write to ${file} or to its directory: chmod o-w them`)
}

// So that a module needs no import of ours, wherever it lies and however we were installed.
const TOOLS: OperatorTools = { Refusal }

async function make(file: string, path: string, digest: string, options: object): Promise<unknown> {
  const module = await importing(file, path, digest)
  if (typeof module.plugin !== 'function') throw new Error(`${path} does not export a function named plugin`)
  try {
    // A copy: a module that keeps or changes its options must not change the configuration.
    return await module.plugin(structuredClone(options), TOOLS)
  } catch (error) {
    throw new Error(`plugin(options) of ${path} threw ${describeError(error)}`, { cause: error })
  }
}

async function importing(
  file: string,
  path: string,
  digest: string,
): Promise<Readonly<Record<string, unknown>>> {
  try {
    // The query is part of a module's identity in the loader's cache: new bytes, new module.
    return await import(`${pathToFileURL(file).href}?sha256=${digest}`)
  } catch (error) {
    throw new Error(`module ${path} cannot be loaded: ${describeError(error)}`, { cause: error })
  }
}

const describeError = (error: unknown): string =>
  error instanceof Error ? `${error.name}: ${error.message.split('\n')[0]}` : String(error)

function validate(made: unknown, path: string): OperatorPlugin {
  const wrong = (what: string) => new Error(`plugin(options) of ${path} ${what}`)
  if (typeof made !== 'object' || made === null) throw wrong('must return { name, needs, admit }')
  const { name, needs, admit, settled, gives }: Partial<Record<string, unknown>> = { ...made }
  if (typeof name !== 'string' || !NAME.test(name))
    throw wrong(`returns a name that does not match ${NAME.source}`)
  if (!Array.isArray(needs)) throw wrong('must return needs, a list of facts')
  const strange = needs.find((need) => !FACTS.some((fact) => fact === need))
  if (strange !== undefined) throw wrong(`needs ${JSON.stringify(strange)}; it may need ${FACTS.join(', ')}`)
  if (gives !== undefined && !(Array.isArray(gives) && gives.length === 0)) {
    throw wrong('gives facts, but a check of your own may only refuse: remove gives')
  }
  if (typeof admit !== 'function') throw wrong('must return admit, a function')
  if (settled !== undefined && typeof settled !== 'function') throw wrong('returns settled, but no function')
  return {
    name,
    needs: needs.map(String),
    admit: (facts) => Reflect.apply(admit, made, [facts]),
    ...(settled && { settled: (facts, settlement) => Reflect.apply(settled, made, [facts, settlement]) }),
  }
}

function checkOf({ name, needs, admit, settled }: OperatorPlugin, ms: number): CheckPlugin {
  const chosen = FACTS.filter((fact) => needs.includes(fact))
  const late = () => new Error(`${name} did not settle within ${ms} ms`)
  return {
    name,
    admit: async (facts) => {
      try {
        await withDeadline({ ms, late }, async () => admit(copy(facts, chosen)))
      } catch (error) {
        throw error instanceof Refusal ? error : new Refusal('plugin_failed', { cause: error })
      }
      return {}
    },
    ...(settled && {
      settled: (facts, settlement) => settled(copy(facts, chosen), structuredClone(settlement)),
    }),
  }
}

function copy(facts: Arrival & CheckFacts, chosen: readonly (keyof CheckFacts)[]): OperatorFacts {
  const { id, at, method, path, remoteAddress, granted } = facts
  // The gate's principal; and of the grant only the demand: its target is ours alone.
  const judged = { ...facts, principal: granted.principal, granted: granted.demand }
  const needed = chosen.map((fact) => {
    if (judged[fact] === undefined) throw new Error(`the fact ${fact} is not known on ${path}`)
    return [fact, judged[fact]] as const
  })
  return structuredClone({ id, at, method, path, remoteAddress, ...Object.fromEntries(needed) })
}
