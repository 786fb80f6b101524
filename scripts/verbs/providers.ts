import type { ProviderList } from '../../proxy/admin/operation/provider-shapes.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const PROVIDERS = '/v1/admin/providers'

const list = subcommandOf({
  takes: '',
  about: 'every provider of models: its key, whether it answers, and its calls of the last hour',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const found = expectStatus<ProviderList>(await call('GET', PROVIDERS), 200)
    if (json) return say(...jsonLines(found))
    const rows = found.providers.map((one) => [
      ...[one.name, one.key, stateOf(one), String(one.last_hour.calls), String(one.last_hour.errors)],
      one.last_hour.p50_ms === null ? '' : `${Math.round(one.last_hour.p50_ms)} ms`,
    ])
    say(...alignColumns([['NAME', 'KEY', 'STATE', 'CALLS', 'ERRORS', 'P50'], ...rows]))
  },
})

const BREAKERS = { open: ' (left alone)', half_open: ' (tried again)', closed: '', off: '' } as const

const stateOf = (one: ProviderList['providers'][number]): string =>
  one.failing_since !== null
    ? `fails since ${one.failing_since}: ${one.problem ?? ''}${BREAKERS[one.breaker]}`
    : one.answering_since === null
      ? 'not called yet'
      : `answers since ${one.answering_since}${BREAKERS[one.breaker]}`

interface ProviderTrial {
  readonly ms: number
  readonly models: number | null
  readonly problem: string | null
}

const tryIt = subcommandOf({
  takes: 'NAME',
  about: 'ask it for its list of models, once: no prompt is sent',
  misuse: 'name one provider: sallyport providers try openai',
  run: async ({ call, say, args: [name] }) => {
    const path = `${PROVIDERS}/${encodeURIComponent(name)}/try`
    const { ms, models, problem } = expectStatus<ProviderTrial>(await call('POST', path), 200)
    if (problem !== null) throw new Error(`${name} could not be read: ${problem}`)
    say(`${name} listed ${models ?? 0} models in ${ms} ms`)
  },
})

export const verb = verbGroup({
  name: 'providers',
  about: `Shows the providers of models, as this gateway knows them, and tries one. ${DOOR_NOTES}`,
  verbs: { list, try: tryIt },
  notes: 'They are configured in 50-llm.yaml.',
})
