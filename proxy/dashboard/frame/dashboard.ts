import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { FirstBootSetup } from '../../admin/keys/setup.ts'
import type { AdministrationContext } from '../../admin/pipeline.ts'
import type { SignInContext } from '../../operators/signing-in.ts'
import type { ActivityFollowers } from '../activity/followers.ts'
import type { ConfigurationInForce } from '../settings/in-force.ts'

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
