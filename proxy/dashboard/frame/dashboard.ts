import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { FirstBootSetup } from '../../admin/keys/secret.ts'
import type { AdministrationContext } from '../../admin/pipeline.ts'
import type { SignInContext } from '../../operators/signing-in.ts'
import type { ActivityFollowers } from '../activity/followers.ts'
/** The configuration as pages show it: names and places, and no value that could be a secret. */
export interface ConfigurationInForce {
  readonly modes: readonly ModeInForce[]
  readonly files: readonly FileInForce[]
}

export interface ModeInForce {
  readonly name: 'egress_dpop_mode' | 'no_downgrade' | 'enforce_tools_call'
  readonly value: string
  /** All that it may be. */
  readonly values: readonly string[]
  /** The path of the file that says it, or would; null if no file is of its plugin. */
  readonly path: string | null
  /** Null: no line says it, and this is the default. */
  readonly line: number | null
  /** The variable of the environment that says it in place of the file; null: none does. */
  readonly variable: string | null
}

export interface FileInForce {
  readonly file: string
  readonly path: string
  readonly plugin: string
  /** True: a check that only watches. */
  readonly shadow: boolean
  /** Hex SHA-256 of its text, but for the line that says `shadow`. */
  readonly digest: string
  /** The options that it names, each with its line. */
  readonly options: readonly { readonly name: string; readonly line: number }[]
}

export interface OtherModel {
  readonly provider: string
  readonly asked: string
  readonly answered: string
  readonly calls: number
  /** The time of the last of these calls. ms since the epoch. */
  readonly at: number
  readonly requestId: string
}

/** The state of this process and of what it depends on, as it knows it. Times are ms since the epoch. */
export interface ServiceStanding {
  readonly diskLow: boolean
  /** Seconds that this machine's clock is ahead of the database's; 0: not far off. */
  readonly clockOffS: number
  readonly ledgerFailing: boolean
  /** The last load of the operators' files, if it was rejected. */
  readonly rejected: { readonly at: number; readonly message: string } | null
  readonly providers: readonly ProviderHealth[]
  /** The models that were asked for and nobody serves, the last one first. */
  readonly unserved: readonly (Pick<OtherModel, 'asked' | 'calls' | 'at' | 'requestId'> & {
    readonly first: number
  })[]
  /** The targets that are told of rows: their names, and those of their readers. */
  readonly told: readonly (readonly [name: string, reader: string])[]
}

export interface ProviderHealth {
  readonly name: string
  readonly keyMissing: boolean
  /** The variable of the environment that its key comes from; null: none is named. */
  readonly keyVariable: string | null
  readonly failingSince: number | null
  /** Half a sentence; null if it does not fail. */
  readonly problem: string | null
}

export interface DashboardContext {
  readonly standing: () => ServiceStanding
  /** Counts what needs a person, for the navigation. `head`: the hash of the ledger's last row. */
  readonly countAttention?: (facts: AdministrationFacts, head: string) => Promise<number | null>
  readonly context: AdministrationContext
  readonly signIn: SignInContext
  readonly setup: FirstBootSetup
  /** The base URLs that clients reach the gateway by. */
  readonly baseUrls: () => readonly string[]
  /** True if every call must come with a DPoP proof. */
  readonly proofRequired: boolean
  readonly followers: ActivityFollowers
  /** Lists the models that providers ran in place of those that they were asked for, the last one first. */
  readonly modelMismatches: { readonly list: () => readonly OtherModel[] }
  readonly inForce: ConfigurationInForce
}
