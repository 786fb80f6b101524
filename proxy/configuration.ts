import { createHash } from 'node:crypto'
import type { ZodType } from 'zod'
import { messageOf } from '../db/error-message.ts'
import type { DpopMode } from '../plugins/dpop/dpop.ts'
import { ConfigError, type Problem, START } from '../plugins/operator-files/config-error.ts'
import type { Environment } from '../plugins/operator-files/expand.ts'
import {
  isModulePath,
  type OperatorFile,
  type OperatorFiles,
  readOperatorFiles,
} from '../plugins/operator-files/files.ts'
import { type Check, loadOperatorModule } from '../plugins/operator-files/module.ts'
import {
  type AuditOptions,
  auditOptions,
  capabilityOptions,
  dpopOptions,
  type PinOptions,
  pinOptions,
} from '../plugins/options.ts'
import { BUILT_IN, checkOrder, type Declared } from '../plugins/order.ts'
import { policyOptions } from '../plugins/policy/options.ts'
import { openPolicy } from '../plugins/policy/policy.ts'
import { type LlmOptions, llmOptions } from './llm/options.ts'
import { type McpOptions, mcpOptions } from './mcp/options.ts'

/** What the operator's files say, checked as a whole. */
export interface Configuration {
  /** Hex SHA-256 over the files' names and raw bytes and over the bytes of the operator's modules and compiled policy. */
  readonly digest: string
  /** As the file says: `MCP_PROXY_EGRESS_DPOP_MODE` is the caller's to apply. */
  readonly dpopMode: DpopMode
  /** `no_downgrade`: a registered DPoP key must be used. */
  readonly noDowngrade: boolean
  readonly pin: PinOptions
  readonly audit: AuditOptions
  readonly llm: LlmOptions
  /** The defaults where there is no file. */
  readonly mcp: McpOptions
  /** The operator's own checks and policy, in order, between the capability gate and the record. */
  readonly checks: readonly Check[]
  readonly files: readonly OperatorFile[]
  /** Ends what the checks keep ready. Calls under way that still come to them are judged all the same. */
  readonly close: () => Promise<void>
}

/** The options of every plugin that a file may name, without the `plugin` key. */
export const SCHEMAS: ReadonlyMap<string, ZodType> = new Map<string, ZodType>([
  ['pin', pinOptions],
  ['dpop', dpopOptions],
  ['capability', capabilityOptions],
  ['policy', policyOptions],
  ['audit', auditOptions],
  ['llm', llmOptions],
  ['mcp', mcpOptions],
])

/**
 * Reads, checks and loads a directory of operator files (WIRE.md §8). All or nothing: throws one {@link ConfigError}
 * with everything that is wrong, so that a reload can keep the configuration in force (SECURITY F-31).
 * Order, modules and policy are looked at only once every file reads well: half the files would make false alarms.
 */
export async function loadConfiguration(directory: string, env: Environment): Promise<Configuration> {
  const read = await readOperatorFiles({ directory, schemas: SCHEMAS, env })
  const problems: Problem[] = []
  const checks = await loadChecks(read.files, directory, problems)
  problems.push(...checkOrder(read.files, declarations(read.files, checks)), ...oneLlmFile(read.files))
  if (problems.length > 0) {
    await closeAll(checks)
    throw new ConfigError(directory, problems)
  }
  const options = (plugin: string) => read.files.find((file) => file.plugin === plugin)?.options
  // Parsed once more, which costs nothing and gives the types back that the list of files cannot carry.
  const dpop = dpopOptions.parse(options('dpop'))
  return {
    digest: digestOf(read, checks),
    dpopMode: dpop.egress_dpop_mode,
    noDowngrade: dpop.no_downgrade,
    pin: pinOptions.parse(options('pin')),
    audit: auditOptions.parse(options('audit')),
    llm: llmOptions.parse(options('llm')),
    mcp: mcpOptions.parse(options('mcp') ?? {}),
    checks: [...checks.values()].map(({ check }) => check),
    files: read.files,
    close: () => closeAll(checks),
  }
}

/** What stands between the gate and the record: an operator's module, or the policy. */
interface LoadedCheck {
  readonly check: Check
  /** The facts that a module of an operator's own declares; the policy's stand in the list of built-in plugins. */
  readonly needs?: readonly string[]
  /** Hex SHA-256 of its code; null where that lies elsewhere. */
  readonly digest: string | null
  readonly close: () => Promise<void>
}

type Checks = ReadonlyMap<string, LoadedCheck>

/** One after the other, so that what their loading logs stands in order. Keyed by the file that names them. */
async function loadChecks(
  files: readonly OperatorFile[],
  directory: string,
  problems: Problem[],
): Promise<Checks> {
  const checks = new Map<string, LoadedCheck>()
  for (const operatorFile of files) {
    const { file, position } = operatorFile
    try {
      const loaded = await loadCheck(operatorFile, directory)
      if (loaded) checks.set(file, loaded)
    } catch (error) {
      problems.push({ file, ...position, message: messageOf(error) })
    }
  }
  return checks
}

async function loadCheck(
  { plugin, options }: OperatorFile,
  directory: string,
): Promise<LoadedCheck | undefined> {
  if (plugin === 'policy') return openPolicy(policyOptions.parse(options), directory)
  if (!isModulePath(plugin)) return undefined
  return { ...(await loadOperatorModule({ path: plugin, directory, options })), close: async () => {} }
}

async function closeAll(checks: Checks): Promise<void> {
  await Promise.all([...checks.values()].map(({ close }) => close()))
}

function declarations(files: readonly OperatorFile[], checks: Checks): ReadonlyMap<string, Declared> {
  const declared = new Map<string, Declared>()
  for (const { plugin, file } of files) {
    const needs = checks.get(file)?.needs
    const found = BUILT_IN.get(plugin) ?? (needs && { needs, gives: [] })
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

function digestOf({ digest }: OperatorFiles, checks: Checks): string {
  const code = [...checks.values()].flatMap((loaded) => loaded.digest ?? [])
  if (code.length === 0) return digest
  const whole = createHash('sha256').update(digest)
  for (const one of code) whole.update(one)
  return whole.digest('hex')
}
