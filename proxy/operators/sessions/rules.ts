import type { SessionRules } from '../../../plugins/operators/sessions.ts'
import { readClaimMapping } from '../oidc/mapping.ts'
import type { OperatorsOptions } from '../options.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

export const sessionRulesOf = (inForce: () => { readonly operators: OperatorsOptions }) => (): SessionRules =>
  readSessionRules(inForce().operators)

export const readSessionRules = ({ session, oidc }: OperatorsOptions): SessionRules => ({
  idleMs: session.idle_minutes * MINUTE_MS,
  absoluteMs: session.absolute_hours * HOUR_MS,
  marks: readClaimMapping(oidc).marks,
})
