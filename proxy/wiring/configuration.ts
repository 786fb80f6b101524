import { createHash } from 'node:crypto'
import { messageOf } from '../../db/support/error-message.ts'
import type { JsonObject } from '../../db/support/json.ts'
import type { JudgingRules } from '../../plugins/audit/decision.ts'
import type { AuditOptions } from '../../plugins/audit/options.ts'
import { catalogueRow, type OpenedCheck, pluginCatalogue } from '../../plugins/catalogue.ts'
import type { DpopMode } from '../../plugins/dpop/dpop.ts'
import { ConfigError, type ConfigProblem, FILE_START } from '../../plugins/operator-files/config-error.ts'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import {
  isModulePath,
  type OperatorFile,
  type OperatorFiles,
  readOperatorFiles,
} from '../../plugins/operator-files/files.ts'
import { loadOperatorModule } from '../../plugins/operator-files/module.ts'
import { nearestName } from '../../plugins/operator-files/nearest-name.ts'
import { checkOrder } from '../../plugins/order.ts'
import type { PinOptions } from '../../plugins/pin/options.ts'
import { matchesOf, type PriceOptions, priceOptions } from '../../plugins/prices/options.ts'
import { type OpenPriceTable, vendorIn } from '../../plugins/prices/rates.ts'
import { openPriceTable } from '../../plugins/prices/table.ts'
import { expectOptions } from '../admin/conditions/sentence.ts'
import type { Expectation, ExpectationsInForce } from '../admin/operation/context.ts'
import { type ArchiveOptions, archiveOptions } from '../archive/options.ts'
import { type ExportOptions, exportOptions } from '../export/options.ts'
import { type LlmOptions, llmOptions, withKeyVariables, withProxies } from '../llm/options.ts'
import { type McpOptions, mcpOptions } from '../mcp/options.ts'
import { type NotifyOptions, notifyOptions } from '../notify/options.ts'
import { type OperatorsOptions, operatorsOptions } from '../operators/options.ts'
import { type PeopleOptions, peopleOptions } from '../people/options.ts'
import { type ProofsOptions, proofsOptions } from '../proofs/options.ts'
import { telemetryOptions } from '../telemetry/otlp/options.ts'
import type { ConfiguredTelemetry } from './telemetry.ts'

/** The operator's files, read and checked as a whole. */
export interface Configuration {
  /**
   * Hex SHA-256 over the files' names and raw bytes and over the bytes of the operator's modules and compiled
   * policy.
   */
  readonly digest: string
  /** The mode in the file. The caller applies `MCP_PROXY_EGRESS_DPOP_MODE`. */
  readonly dpopMode: DpopMode
  /** `no_downgrade`: a registered DPoP key must be used. */
  readonly noDowngrade: boolean
  readonly pin: PinOptions
  readonly audit: AuditOptions
  readonly llm: LlmOptions
  /** The options in the file; the defaults if there is none. */
  readonly mcp: McpOptions
  /** The same of `70-operators.yaml`. */
  readonly operators: OperatorsOptions
  /** The same of `65-people.yaml`. */
  readonly people: PeopleOptions
  /** The same of `45-proofs.yaml`. */
  readonly proofs: ProofsOptions
  /** The prices of `55-prices.yaml`; null if there is none, or it names none. */
  readonly prices: ConfiguredPrices | null
  /** The options of `90-archive.yaml`; null if there is none. */
  readonly archive: ArchiveOptions | null
  /** The exports of `80-telemetry.yaml`; null if there is none. */
  readonly telemetry: ConfiguredTelemetry | null
  /** The options of `75-notify.yaml`; null if there is none. */
  readonly notify: NotifyOptions | null
  /** The options of `85-export.yaml`; null if there is none. */
  readonly exports: ExportOptions | null
  /** The operator's own checks and policy, in order, between the capability gate and the record. */
  readonly checks: readonly InstalledCheck[]
  /** The sentences of `90-expect.yaml`, in their order. */
  readonly expectations: readonly Expectation[]
  readonly files: readonly OperatorFile[]
  /** Releases the resources of the checks. Calls under way that still reach them are judged all the same. */
  readonly close: () => Promise<void>
}

export interface ConfiguredPrices {
  readonly options: PriceOptions
  readonly table: OpenPriceTable | null
}

/** A check, and the hex SHA-256 of its code; null if that lies elsewhere. */
export interface InstalledCheck extends Pick<OpenedCheck, 'check' | 'digest' | 'content'> {
  /** True: it only watches (docs/rehearsal.md#shadow). */
  readonly shadow: boolean
  /** True: a module of the operator's own, which may count what it is asked. */
  readonly isModule: boolean
  /** Hex SHA-256 of the options in its file. */
  readonly options: string
}

/**
 * The rules that judge, as in decision rows, and the row of the configuration itself
 * (docs/ledger.md#authority).
 */
export const judgingOf = ({ digest, dpopMode, noDowngrade, checks }: Configuration): JudgingRules => ({
  configDigest: digest,
  mode: { egress_dpop_mode: dpopMode, no_downgrade: noDowngrade },
  checks: checks.map(({ check: { name }, digest: code, shadow }) => ({ name, digest: code, shadow })),
})

/** The `detail` of the row `config.loaded`: the rules of every decision under its digest. */
export const loadedDetail = (configuration: Configuration): JsonObject => {
  const { mode, configDigest } = judgingOf(configuration)
  const { enforce_tools_call, list } = configuration.mcp
  return {
    digest: configDigest,
    ...mode,
    enforce_tools_call,
    list,
    ...(configuration.files.some(({ plugin }) => plugin === 'people') && {
      people: { llm: configuration.people.llm },
    }),
    checks: namedChecks(configuration),
    ...contentDetail(configuration),
  }
}

/** The rules and services that judge content, if there are any: services see it. */
function contentDetail({ checks }: Configuration): JsonObject {
  const about = checks.flatMap(({ content, digest, shadow }) =>
    content ? [{ rules_digest: digest, shadow, ...content.about }] : [],
  )
  return about.length === 0 ? {} : { content: about }
}

/** Makes what flags a tool's definition that holds a secret; null: no check of content looks at what servers say. */
export function definitionFlags({
  checks,
}: Pick<Configuration, 'checks'>): ((definition: string) => Promise<readonly string[]>) | null {
  const judges = checks.flatMap(({ content }) => (content?.looksAt('tool_result') ? [content] : []))
  if (judges.length === 0) return null
  return async (definition) => {
    const judged = await Promise.all(judges.map((judge) => judge.judgePiece(definition)))
    const rules = judged.flatMap(({ verdict: { verdict, findings } }) =>
      verdict === 'failed' ? ['not_judged'] : findings.map(({ rule }) => rule),
    )
    return [...new Set(rules)].map((rule) => `secret:${rule}`)
  }
}

/** The checks, in order, by all that tells one from another. */
export const namedChecks = ({ checks }: Pick<Configuration, 'checks'>) =>
  checks.map(({ check: { name }, digest, shadow, options }) => ({ name, digest, shadow, options }))

/** The expectations, and the parts of the configuration they are judged by. */
export const expectedOf = ({
  expectations,
  mcp,
}: Pick<Configuration, 'expectations' | 'mcp'>): ExpectationsInForce => ({
  sentences: expectations,
  enforceToolsCall: mcp.enforce_tools_call,
  httpGet: mcp.http_get.enabled,
})

/** Every plugin that a file may name. */
export const CATALOGUE = pluginCatalogue({
  llm: llmOptions,
  mcp: mcpOptions,
  operators: operatorsOptions,
  people: peopleOptions,
  expect: expectOptions,
  proofs: proofsOptions,
  archive: archiveOptions,
  telemetry: telemetryOptions,
  notify: notifyOptions,
  export: exportOptions,
})

const SCHEMAS = new Map(Object.entries(CATALOGUE).map(([plugin, { options }]) => [plugin, options]))
const CHECKS = new Set(
  Object.entries(CATALOGUE).flatMap(([plugin, { place }]) => (place === 'check' ? [plugin] : [])),
)

/**
 * Reads, checks and loads a directory of operator files (docs/protocol.md#operator-files). All or nothing:
 * throws one {@link ConfigError} with everything that is wrong, so that a reload can keep the configuration
 * in force (docs/threats.md#f-31). Order, modules and policy are looked at only once every file reads well:
 * half the files would make false alarms.
 */
export async function loadConfiguration(
  directory: string,
  env: EnvironmentVariables,
): Promise<Configuration> {
  const read = await readOperatorFiles({ directory, schemas: SCHEMAS, checks: CHECKS, env })
  const problems: ConfigProblem[] = []
  const checks = await loadChecks(read.files, directory, problems)
  const prices = await pricesIn(read.files, directory, problems)
  const moduleNeeds = new Map([...checks].map(([file, { needs }]) => [file, needs]))
  const order = { files: read.files, catalogue: CATALOGUE, moduleNeeds }
  problems.push(...checkOrder(order), ...missingLlmFile(read.files))
  if (problems.length > 0) {
    await closeAll(checks)
    throw new ConfigError(directory, problems)
  }
  const fileOf = (plugin: keyof typeof CATALOGUE) => read.files.find((file) => file.plugin === plugin)
  const optionsOf = (plugin: keyof typeof CATALOGUE) => fileOf(plugin)?.options
  // Parsed once more, which costs nothing and gives the types back that the list of files cannot carry.
  const dpop = CATALOGUE.dpop.options.parse(optionsOf('dpop'))
  return {
    digest: digestOf(read, checks, prices),
    dpopMode: dpop.egress_dpop_mode,
    noDowngrade: dpop.no_downgrade,
    pin: CATALOGUE.pin.options.parse(optionsOf('pin')),
    audit: CATALOGUE.audit.options.parse(optionsOf('audit')),
    llm: withProxies(
      withKeyVariables(llmOptions.parse(optionsOf('llm')), (path) => fileOf('llm')?.written(path)),
      env,
    ),
    mcp: mcpOptions.parse(optionsOf('mcp') ?? {}),
    operators: operatorsOptions.parse(optionsOf('operators') ?? {}),
    people: peopleOptions.parse(optionsOf('people') ?? {}),
    proofs: proofsOptions.parse(optionsOf('proofs') ?? {}),
    archive: archiveIn(fileOf('archive')),
    telemetry: await telemetryIn(fileOf('telemetry')),
    notify: notifyIn(fileOf('notify')),
    exports: exportIn(fileOf('export')),
    prices,
    checks: [...checks.values()].map(({ check, digest, shadow, isModule, options, content }) => ({
      ...{ check, digest, shadow, isModule, options },
      ...(content && { content }),
    })),
    expectations: expectationsIn(fileOf('expect')),
    files: read.files,
    close: () => closeAll(checks),
  }
}

const notifyIn = (file: OperatorFile | undefined): NotifyOptions | null =>
  file ? notifyOptions.parse(file.options) : null

const archiveIn = (file: OperatorFile | undefined): ArchiveOptions | null =>
  file ? archiveOptions.parse(file.options) : null

/** Loads the code of the exports, if there are any. */
async function telemetryIn(file: OperatorFile | undefined): Promise<ConfiguredTelemetry | null> {
  if (!file) return null
  const { openTelemetry: open } = await import('../telemetry/otlp/telemetry.ts')
  return { options: telemetryOptions.parse(file.options), open }
}

const exportIn = (file: OperatorFile | undefined): ExportOptions | null =>
  file ? exportOptions.parse(file.options) : null

function expectationsIn(file: OperatorFile | undefined): readonly Expectation[] {
  const { expect } = expectOptions.parse(file?.options ?? {})
  return expect.map((sentence, at) => ({
    sentence,
    line: file?.positionOf(['expect', at]).line ?? 1,
  }))
}

interface LoadedCheck extends OpenedCheck, InstalledCheck {
  /**
   * The facts that a module of an operator's own declares; those of a built-in check stand in the catalogue.
   */
  readonly needs: readonly string[]
}

type LoadedChecks = ReadonlyMap<string, LoadedCheck>

/**
 * Loads the checks one after the other, so that their log lines are in order. Returns each under the name of
 * its file.
 */
async function loadChecks(
  files: readonly OperatorFile[],
  directory: string,
  problems: ConfigProblem[],
): Promise<LoadedChecks> {
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
  { plugin, options, shadow, digest }: OperatorFile,
  directory: string,
): Promise<LoadedCheck | undefined> {
  const row = catalogueRow(CATALOGUE, plugin)
  if (row?.place === 'check')
    return { ...(await row.open(options, directory)), shadow, isModule: false, options: digest, needs: [] }
  if (!isModulePath(plugin)) return undefined
  const module = await loadOperatorModule({ path: plugin, directory, options })
  return { ...module, shadow, isModule: true, options: digest, close: async () => {} }
}

async function closeAll(checks: LoadedChecks): Promise<void> {
  await Promise.all([...checks.values()].map(({ close }) => close()))
}

/** Reports that there is no file of the plugin `llm`. The order check reports a second one. */
function missingLlmFile(files: readonly OperatorFile[]): ConfigProblem[] {
  if (files.some(({ plugin }) => plugin === 'llm')) return []
  const message = 'the provider list is missing: restore 50-llm.yaml, with providers: [] where there are none'
  return [{ file: '50-llm.yaml', ...FILE_START, message }]
}

/** Reads the prices. A table that cannot be read, or vendors that it does not have, are problems. */
async function pricesIn(
  files: readonly OperatorFile[],
  directory: string,
  problems: ConfigProblem[],
): Promise<ConfiguredPrices | null> {
  const file = files.find(({ plugin }) => plugin === 'prices')
  if (!file) return null
  const options = priceOptions.parse(file.options)
  const opened = await openPriceTable(options.table, directory)
  if (opened && 'problems' in opened) {
    problems.push(...opened.problems.map(({ message, ...place }) => ({ ...place, message })))
    return null
  }
  const llm = files.find(({ plugin }) => plugin === 'llm')
  if (opened && llm) problems.push(...unknownVendors(llm, options, opened))
  const isEmpty = !opened && options.models.length === 0 && Object.keys(options.tools).length === 0
  return isEmpty ? null : { options, table: opened }
}

/** Finds the vendors of `prices_as` that no price is of. */
function unknownVendors(
  llm: OperatorFile,
  { models }: PriceOptions,
  { prices }: OpenPriceTable,
): ConfigProblem[] {
  const vendors = new Set([...models, ...prices.models].flatMap(matchesOf).map(vendorIn))
  if (vendors.has('')) return []
  return llmOptions.parse(llm.options).providers.flatMap(({ prices_as: vendor }, at) => {
    if (vendor === undefined || vendors.has(vendor)) return []
    const message = `no price is of the vendor ${vendor}: did you mean ${nearestName(vendor, vendors)}?`
    return [{ file: llm.file, ...llm.positionOf(['providers', at, 'prices_as']), message }]
  })
}

function digestOf({ digest }: OperatorFiles, checks: LoadedChecks, prices: ConfiguredPrices | null): string {
  const ofTable = prices?.table?.source === 'table' ? [prices.table.digest] : []
  const code = [...[...checks.values()].flatMap((loaded) => loaded.digest ?? []), ...ofTable]
  if (code.length === 0) return digest
  const whole = createHash('sha256').update(digest)
  for (const one of code) whole.update(one)
  return whole.digest('hex')
}
