import type { ZodType } from 'zod'
import { auditOptions } from './audit/options.ts'
import { capabilityOptions } from './capability.ts'
import type { ContentJudge } from './content/judge.ts'
import { contentOptions } from './content/options.ts'
import { dpopOptions } from './dpop/options.ts'
import type { CheckPlugin } from './operator-files/module.ts'
import { pinOptions } from './pin/options.ts'
import { policyOptions } from './policy/options.ts'
import { openPolicy } from './policy/policy.ts'
import { priceOptions } from './prices/options.ts'

/** Lists the built-in plugins. A new one: a folder, a row here, and a `.pass()` in `pipelines.ts`. */
export const pluginCatalogue = <
  Llm extends ZodType,
  Mcp extends ZodType,
  Operators extends ZodType,
  People extends ZodType,
  Expect extends ZodType,
  Proofs extends ZodType,
  Archive extends ZodType,
  Telemetry extends ZodType,
  Notify extends ZodType,
  Export extends ZodType,
>(services: {
  llm: Llm
  mcp: Mcp
  operators: Operators
  people: People
  expect: Expect
  proofs: Proofs
  archive: Archive
  telemetry: Telemetry
  notify: Notify
  export: Export
}) =>
  ({
    pin: { place: 'identity', file: '10-pin.yaml', options: pinOptions, needs: [], gives: ['principal'] },
    dpop: {
      place: 'identity',
      file: '20-dpop.yaml',
      options: dpopOptions,
      needs: ['principal'],
      gives: ['proof', 'token'],
    },
    capability: {
      place: 'gate',
      file: '30-capability.yaml',
      options: capabilityOptions,
      needs: ['principal', 'proof', 'token', 'demand'],
      gives: ['granted'],
    },
    policy: {
      place: 'check',
      options: policyOptions,
      needs: ['principal', 'proof', 'token', 'demand', 'call', 'granted'],
      gives: [],
      open: (options, directory) => openPolicy(policyOptions.parse(options), directory),
    },
    content: {
      place: 'check',
      options: contentOptions,
      needs: ['principal', 'demand', 'call', 'granted'],
      gives: [],
      // Its packages are loaded only if a file names it.
      open: async (options) =>
        (await import('./content/content.ts')).openContent(contentOptions.parse(options)),
    },
    audit: { place: 'record', file: '40-audit.yaml', options: auditOptions, needs: ['granted'], gives: [] },
    prices: { place: 'service', options: priceOptions, needs: [], gives: [] },
    llm: { place: 'service', options: services.llm, needs: [], gives: [] },
    mcp: { place: 'service', options: services.mcp, needs: [], gives: [] },
    operators: { place: 'service', options: services.operators, needs: [], gives: [] },
    people: { place: 'service', options: services.people, needs: [], gives: [] },
    expect: { place: 'service', options: services.expect, needs: [], gives: [] },
    proofs: { place: 'service', options: services.proofs, needs: [], gives: [] },
    archive: { place: 'service', options: services.archive, needs: [], gives: [] },
    telemetry: { place: 'service', options: services.telemetry, needs: [], gives: [] },
    notify: { place: 'service', options: services.notify, needs: [], gives: [] },
    export: { place: 'service', options: services.export, needs: [], gives: [] },
  }) as const satisfies PluginCatalogue

export type PluginCatalogue = Readonly<Record<string, CatalogueRow>>

export type CatalogueRow = PluginDescription & (MandatoryPlugin | OptionalPlugin | ServiceFile)

interface PluginDescription {
  readonly options: ZodType
  /** The facts that must be known before it runs, by name: for the files' order. */
  readonly needs: readonly string[]
  readonly gives: readonly string[]
}

/**
 * A plugin whose file can be tuned but never removed. A check stands after the gate and before the record.
 */
interface MandatoryPlugin {
  readonly place: 'identity' | 'gate' | 'record'
  /** The shipped file, to restore it by. */
  readonly file: string
}

/** A plugin that can only refuse; absent if no file names it. */
interface OptionalPlugin {
  readonly place: 'check'
  /**
   * Makes the check of these options. Paths are relative to `directory`. Throws an Error with one sentence.
   */
  readonly open: (options: unknown, directory: string) => Promise<OpenedCheck>
}

/** The settings of a service after the pipelines: its file has no place in their order. */
interface ServiceFile {
  readonly place: 'service'
}

/** A check between the gate and the record, ready to judge. */
export interface OpenedCheck {
  readonly check: CheckPlugin
  /** Hex SHA-256 of its code; null if that lies elsewhere. */
  readonly digest: string | null
  /** Judges the content of answers; absent: it has no say in them. */
  readonly content?: ContentJudge
  /** Releases its resources. A call under way that still reaches it is answered all the same. */
  readonly close: () => Promise<void>
}

/** Returns the row of a plugin; undefined for a name that is not built in. */
export const catalogueRow = (rows: PluginCatalogue, plugin: string): CatalogueRow | undefined =>
  Object.hasOwn(rows, plugin) ? rows[plugin] : undefined
