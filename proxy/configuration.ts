import { createHash } from 'node:crypto'
import type { ZodType } from 'zod'
import { ConfigError, type Problem, START } from '../plugins/config-error.ts'
import type { DpopMode } from '../plugins/dpop.ts'
import type { Environment } from '../plugins/expand.ts'
import {
  isModulePath,
  type OperatorFile,
  type OperatorFiles,
  readOperatorFiles,
} from '../plugins/operator-files.ts'
import { type Check, type LoadedModule, loadOperatorModule } from '../plugins/operator-module.ts'
import {
  type AuditOptions,
  auditOptions,
  capabilityOptions,
  dpopOptions,
  type PinOptions,
  pinOptions,
} from '../plugins/options.ts'
import { BUILT_IN, checkOrder, type Declared } from '../plugins/order.ts'
import { type LlmOptions, llmOptions } from './llm/options.ts'

/** What the operator's files say, checked as a whole. */
export interface Configuration {
  /** Hex SHA-256 over the files' names and raw bytes and over the bytes of the operator's modules. */
  readonly digest: string
  /** As the file says: `MCP_PROXY_EGRESS_DPOP_MODE` is the caller's to apply. */
  readonly dpopMode: DpopMode
  /** `no_downgrade`: a registered DPoP key must be used. */
  readonly noDowngrade: boolean
  readonly pin: PinOptions
  readonly audit: AuditOptions
  readonly llm: LlmOptions
  /** The operator's own checks, in order, between the capability gate and the record. */
  readonly checks: readonly Check[]
  readonly files: readonly OperatorFile[]
}

/** The options of every plugin that a file may name, without the `plugin` key. */
export const SCHEMAS: ReadonlyMap<string, ZodType> = new Map<string, ZodType>([
  ['pin', pinOptions],
  ['dpop', dpopOptions],
  ['capability', capabilityOptions],
  ['audit', auditOptions],
  ['llm', llmOptions],
])

/**
 * Reads, checks and loads a directory of operator files (WIRE.md §8). All or nothing: throws one {@link ConfigError}
 * with everything that is wrong, so that a reload can keep the configuration in force (SECURITY F-31).
 * Order and modules are looked at only once every file reads well: half the files would make false alarms.
 */
export async function loadConfiguration(directory: string, env: Environment): Promise<Configuration> {
  const read = await readOperatorFiles({ directory, schemas: SCHEMAS, env })
  const problems: Problem[] = []
  const modules = await loadModules(read.files, directory, problems)
  problems.push(...checkOrder(read.files, declarations(read.files, modules)), ...oneLlmFile(read.files))
  if (problems.length > 0) throw new ConfigError(directory, problems)
  const options = (plugin: string) => read.files.find((file) => file.plugin === plugin)?.options
  // Parsed once more, which costs nothing and gives the types back that the list of files cannot carry.
  const dpop = dpopOptions.parse(options('dpop'))
  return {
    digest: digestOf(read, modules),
    dpopMode: dpop.egress_dpop_mode,
    noDowngrade: dpop.no_downgrade,
    pin: pinOptions.parse(options('pin')),
    audit: auditOptions.parse(options('audit')),
    llm: llmOptions.parse(options('llm')),
    checks: [...modules.values()].map(({ check }) => check),
    files: read.files,
  }
}

type Modules = ReadonlyMap<string, LoadedModule>

/** One after the other, so that what their loading logs stands in order. Keyed by the file that names them. */
async function loadModules(
  files: readonly OperatorFile[],
  directory: string,
  problems: Problem[],
): Promise<Modules> {
  const modules = new Map<string, LoadedModule>()
  for (const { plugin, file, options, position } of files) {
    if (!isModulePath(plugin)) continue
    try {
      modules.set(file, await loadOperatorModule({ path: plugin, directory, options }))
    } catch (error) {
      problems.push({ file, ...position, message: error instanceof Error ? error.message : String(error) })
    }
  }
  return modules
}

function declarations(files: readonly OperatorFile[], modules: Modules): ReadonlyMap<string, Declared> {
  const declared = new Map<string, Declared>()
  for (const { plugin, file } of files) {
    const found = BUILT_IN.get(plugin) ?? modules.get(file)?.check
    if (found) declared.set(file, found)
  }
  return declared
}

/** A second one is told by the order check. */
function oneLlmFile(files: readonly OperatorFile[]): Problem[] {
  if (files.some(({ plugin }) => plugin === 'llm')) return []
  const message = 'the provider list is missing: restore 50-llm.yaml, with providers: [] where there are none'
  return [{ file: '50-llm.yaml', ...START, message }]
}

function digestOf({ digest }: OperatorFiles, modules: Modules): string {
  if (modules.size === 0) return digest
  const whole = createHash('sha256').update(digest)
  for (const loaded of modules.values()) whole.update(loaded.digest)
  return whole.digest('hex')
}
