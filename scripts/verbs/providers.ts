import type { ProviderList } from '../../proxy/admin/operation/provider-shapes.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { alignColumns, jsonLines } from '../admin/printable.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { verbGroup } from '../admin/subcommands.ts'
import { commandOf } from '../command.ts'

const PROVIDERS = '/v1/admin/providers'

const list = subcommandOf({
  takes: '',
  about: 'every provider of models: its key, whether it answers, and its calls of the last hour',
  options: { json: { type: 'boolean', default: false, description: 'as the admin API says it' } },
  work:
    ({ json }) =>
    async (call, say) => {
      const found = expectStatus<ProviderList>(await call('GET', PROVIDERS), 200)
      if (json) return say(...jsonLines(found))
      const rows = found.providers.map((one) => [
        ...[one.name, one.key, stateOf(one), String(one.last_hour.calls), String(one.last_hour.errors)],
        one.last_hour.p50_ms === null ? '' : `${Math.round(one.last_hour.p50_ms)} ms`,
      ])
      say(...alignColumns([['NAME', 'KEY', 'STATE', 'CALLS', 'ERRORS', 'P50'], ...rows]))
    },
})

const stateOf = (one: ProviderList['providers'][number]): string =>
  one.failing_since !== null
    ? `fails since ${one.failing_since}: ${one.problem ?? ''}`
    : one.answering_since === null
      ? 'not called yet'
      : `answers since ${one.answering_since}`

interface ProviderTrial {
  readonly ms: number
  readonly models: number | null
  readonly problem: string | null
}

const tryIt = subcommandOf({
  takes: 'NAME',
  about: 'ask it for its list of models, once: no prompt is sent',
  options: {},
  work: (_, [name, ...rest]) => {
    if (!name || rest.length > 0) throw new Error('name one provider: sallyport providers try openai')
    return async (call, say) => {
      const path = `${PROVIDERS}/${encodeURIComponent(name)}/try`
      const { ms, models, problem } = expectStatus<ProviderTrial>(await call('POST', path), 200)
      if (problem !== null) throw new Error(`${name} could not be read: ${problem}`)
      say(`${name} listed ${models ?? 0} models in ${ms} ms`)
    }
  },
})

const { perform: _, ...verb } = verbGroup({
  name: 'providers',
  about: `Shows the providers of models, as this gateway knows them, and tries one. ${DOOR_NOTES}`,
  verbs: { list, try: tryIt },
  notes: 'They are configured in 50-llm.yaml.',
  helpCommand: commandOf('sallyport ARGS="providers --help"', 'providers --help'),
})

export { verb }
