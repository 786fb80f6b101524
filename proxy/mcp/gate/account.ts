import { randomBytes } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import { accountNotEnded } from '../../../db/mcp/accounts.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Principal } from '../../../plugins/facts.ts'
import type { Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Accounts } from '../accounts/accounts.ts'
import type { ConsentLinks } from '../accounts/consent-links.ts'
import { asksUrl, ConsentRequired, type UrlQuestion } from '../protocol/approval-required.ts'
import type { RequestStates } from '../state/request-state.ts'
import { CallAccount } from './call-account.ts'
import { type AccountFacts, accountedTarget, accountStateOwner, type CallDestination } from './checks.ts'

/** The accounts of callers at MCP servers; without the listener for people there are none. */
export interface AccountSources {
  readonly accounts: Pick<Accounts, 'find' | 'authorization' | 'refresh'>
  readonly links: ConsentLinks
}

interface AccountDependencies {
  /** Null: the listener for people is closed. */
  readonly accounts: AccountSources | null
  readonly states: RequestStates
  readonly database: Database
  readonly clock: () => number
}

/** Finds the account of a caller at a server. Refuses with {@link ConsentRequired}. */
export type FindCallAccount = (facts: AccountFacts, to: CallDestination) => Promise<CallAccount>

export function callAccountFinder({
  accounts: sources,
  states,
  database,
  clock,
}: AccountDependencies): FindCallAccount {
  const notEnded = accountNotEnded(database)
  return async (facts, to) => {
    if (!sources) throw closed()
    const { accounts, links } = sources
    const { resource } = to
    const { principal } = facts.granted
    const consent = (scopes: readonly string[]): Refusal => {
      const request = {
        principal: { type: principal.type, id: principal.id },
        resourceId: resource.resource_id,
        scopes,
      }
      const url = links.urlOf(request, clock())
      return consentRequired(url, principal, resource, questionOf(states, facts, to, url))
    }
    const found = await accounts.find(principal, resource)
    if (!found) throw consent([])
    return new CallAccount({ accounts, resource, consent, notEnded }, found)
  }
}

const closed = (): Refusal =>
  new Refusal('mcp_failed', {
    message:
      'This server is called by accounts of people, and the listener for people is closed. Tell the operator.',
  })

function consentRequired(
  url: string,
  { type }: Principal,
  { name }: McpResource,
  question: UrlQuestion | null,
): Refusal {
  const who = type === 'user' ? 'Your user' : 'An operator'
  return new ConsentRequired({
    message:
      `This call needs an account at ${name}, and there is none, or it does not suffice. It has not been made. ` +
      `${who} can connect one at ${url} within a quarter of an hour; then send the call again.`,
    detail: { url },
    question,
  })
}

/** A client is asked to open the page once: if nothing is connected by its next call, that is an error. */
function questionOf(
  states: RequestStates,
  { message, session, granted, consentAsked }: AccountFacts,
  to: CallDestination,
  url: string,
): UrlQuestion | null {
  if (consentAsked || !asksUrl({ message, session })) return null
  const id = `con_${randomBytes(12).toString('hex')}`
  const { era } = message
  const state = era === 'modern' ? states.seal(id, accountStateOwner(granted.principal, message, to)) : null
  return { name: 'account', era, id, url, state }
}

/** Says of a call that nobody makes whether its principal would have to connect an account. */
export const mcpAccountForeseen = (
  sources: AccountSources | null,
): Plugin<Pick<AccountFacts, 'granted'>, object> => ({
  name: 'account',
  admit: async ({ granted }) => {
    const to = accountedTarget({ granted })
    if (to === null) return {}
    if (!(await sources?.accounts.find(granted.principal, to.resource))) throw new Refusal('consent_required')
    return {}
  },
})
