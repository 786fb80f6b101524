import type { StopView } from '../../proxy/admin/stops/stops.ts'
import { stoppedText } from '../../proxy/admin/stops/words.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { commandOf, JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const STOPS = '/v1/admin/stops'

const list = subcommandOf({
  takes: '',
  about: 'the stops that have not ended',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const { stops } = expectStatus<{ readonly stops: readonly StopView[] }>(await call('GET', STOPS), 200)
    if (json) return say(...jsonLines(stops))
    if (stops.length === 0) return say('nothing is stopped')
    const rows = stops.map((one) => [
      ...[one.stop_id, stoppedText(one.scope), one.begun_at, one.until ?? 'until it is ended'],
      `${one.begun_by}: ${one.reason}`,
    ])
    say(...alignColumns([['STOP', 'REFUSES', 'SINCE', 'UNTIL', 'WHY'], ...rows]))
  },
})

const end = subcommandOf({
  takes: 'STOP',
  about: 'allow its calls again, as they were allowed before',
  misuse: `name one stop: ${commandOf('sallyport ARGS="stops list"', 'stops list')} shows them`,
  options: { reason: { type: 'string', value: 'TEXT', description: 'why, for the ledger' } },
  check: ({ reason }) => {
    if (reason === undefined) throw new Error('say why: --reason "the key is replaced"')
    return { reason }
  },
  run: async ({ call, say, args: [stop], checked }) => {
    expectStatus(await call('POST', `${STOPS}/${encodeURIComponent(stop)}/end`, checked), 204)
    say(`${stop} has ended`)
  },
})

export const verb = verbGroup({
  name: 'stops',
  about: `Shows the stops of calls, and ends one. ${DOOR_NOTES}`,
  verbs: { list, end },
  usual: 'list',
  notes: 'Ending a stop demands admin.grant, and a second operator if two_person lists stop_end.',
})
