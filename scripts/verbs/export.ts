import type { ExportStanding } from '../../proxy/admin/operation/archive-shapes.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const EXPORTS = '/v1/admin/exports'

const stateOf = ({ error, failing_since: since, lag_rows: lag, late }: ExportStanding): string => {
  if (since !== null) return `FAILING since ${since}: ${error}`
  if (late) return 'BEHIND'
  return lag === 0 ? 'up to date' : 'on its way'
}

const list = subcommandOf({
  takes: '',
  about: 'the sinks that get rows of the ledger, and how far each is',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const answer = await call('GET', EXPORTS)
    const { sinks } = expectStatus<{ readonly sinks: readonly ExportStanding[] }>(answer, 200)
    if (json) return say(...jsonLines(sinks))
    if (sinks.length === 0) return say('no 85-export.yaml names a sink')
    const rows = sinks.map((one) => [
      ...[one.name, one.kind, one.format, one.target, String(one.lag_rows), stateOf(one)],
    ])
    say(...alignColumns([['SINK', 'KIND', 'FORMAT', 'TO', 'ROWS BEHIND', 'STATE'], ...rows]))
  },
})

const ROW = /^([a-z0-9]{1,64}):([1-9]\d{0,15})$/

const rewind = subcommandOf({
  takes: 'SINK STREAM:SEQ',
  about: 'have a sink get a stream again from a row on',
  misuse: 'name one sink and one row, such as main:1200',
  check: (_values, [, row]) => {
    const [, stream, seq] = ROW.exec(row) ?? []
    if (stream === undefined) throw new Error(`${row} is no row: write STREAM:SEQ, such as main:1200`)
    return { stream, seq: Number(seq) }
  },
  run: async ({ call, say, args: [sink], checked }) => {
    expectStatus(await call('POST', `${EXPORTS}/${encodeURIComponent(sink)}/rewind`, checked), 204)
    say(`${sink} gets ${checked.stream} from row ${checked.seq} on`)
  },
})

export const verb = verbGroup({
  name: 'export',
  about: `Shows the sinks that rows of the ledger are sent to, and sends rows again. ${DOOR_NOTES}`,
  verbs: { list, rewind },
  usual: 'list',
  notes: 'Rewinding demands admin.audit. 85-export.yaml names the sinks (docs/exports.md).',
})
