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

export interface DashboardContext {
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
