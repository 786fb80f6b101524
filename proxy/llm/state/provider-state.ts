import { setTimeout as pause } from 'node:timers/promises'
import { compileGlob } from '../../../db/support/glob.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { PinnedCaller } from '../../../plugins/pin/pin.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { runPromptly } from '../../../plugins/turns.ts'
import type { LlmOptions, LlmProvider } from '../options.ts'
import { type LlmTarget, providersOf, shownName, speaks } from '../routing.ts'
import type { StateMemory } from './memory.ts'
import { MAX_NAMED_IDS, type NamedId, namedIdsSteps } from './named-ids.ts'

/** The providers that may have a call that names what a provider keeps; null: it names nothing. */
export interface StateFacts {
  readonly stateAt: ReadonlySet<string> | null
}

type StateNeeds = Arrival & JsonBody & PinnedCaller & { readonly target: LlmTarget }

const NAMES_NOTHING: StateFacts = { stateAt: null }

/**
 * Refuses with `provider_state_refused` a request that names, by its id, what a provider keeps for somebody else
 * (docs/protocol.md#state). If several providers serve the model, the call goes to those alone that keep it for the
 * caller. Does NOT look at calls that are translated: the translation refuses such a member by itself.
 */
export function providerState(
  options: LlmOptions,
  memory: Pick<StateMemory, 'known' | 'pausesMs'>,
): Plugin<StateNeeds, StateFacts> {
  const find = providersOf(options)
  const shared = new Map(options.providers.map((one) => [one, one.shared_ids.map(compileGlob)]))
  const firstRefused = async (
    provider: LlmProvider,
    named: readonly NamedId[],
    { principal: { ref }, commitments }: PinnedCaller,
  ): Promise<NamedId | undefined> => {
    if (provider.state === 'allow') return undefined
    if (provider.state === 'refuse') return named[0]
    const patterns = shared.get(provider) ?? []
    const own = named.filter(({ id }) => !patterns.some((matches) => matches(id)))
    const ids = [...new Set(own.map(({ id }) => id))]
    const known = ids.length > 0 ? await memory.known({ ref, commitments }, provider.name, ids) : null
    return own.find(({ id }) => !known?.has(id))
  }
  const judged = async (
    facts: StateNeeds,
    providers: readonly LlmProvider[],
    named: readonly NamedId[],
  ): Promise<StateFacts> => {
    if (named.length === 0) return NAMES_NOTHING
    if (named.length > MAX_NAMED_IDS) throw tooMany()
    const pauses = providers.some(({ state }) => state === 'own') ? memory.pausesMs : []
    for (let times = 0; ; times += 1) {
      const refused = await Promise.all(providers.map((provider) => firstRefused(provider, named, facts)))
      const stateAt = new Set(providers.filter((_, place) => !refused[place]).map(({ name }) => name))
      if (stateAt.size > 0) return { stateAt }
      const [provider, id] = [providers[0], refused[0]]
      const ms = pauses[times]
      if (ms !== undefined) await pause(ms)
      else if (provider && id) throw stateRefusal(id, provider)
    }
  }
  return {
    name: 'provider_state',
    admit: (facts) => {
      const { model, endpoint } = facts.target
      if (!facts.scan.isWatched || endpoint.wire === undefined) return NAMES_NOTHING
      const providers = find(model).filter((provider) => speaks(provider, endpoint))
      if (providers.every(({ state }) => state === 'allow')) return NAMES_NOTHING
      const work = namedIdsSteps(facts.body, endpoint.wire)
      const named = runPromptly(work, facts.hangup)
      if (named instanceof Promise) return named.then((found) => judged(facts, providers, found))
      return named.length === 0 ? NAMES_NOTHING : judged(facts, providers, named)
    },
  }
}

function stateRefusal({ at }: NamedId, { name, state }: LlmProvider): Refusal {
  const member = shownName(at)
  const message =
    state === 'refuse'
      ? `${member} names what the provider ${name} keeps, which no call may do here. Send the content itself.`
      : `${member} names what the provider ${name} keeps, and none of its answers to you has stated that id. Send the content itself, or ask an operator to share the id.`
  return new Refusal('provider_state_refused', { message, detail: { member, provider: name } })
}

const tooMany = (): Refusal =>
  new Refusal('provider_state_refused', {
    message: `The body names more than ${MAX_NAMED_IDS} ids of what a provider keeps. Send the content itself.`,
  })
