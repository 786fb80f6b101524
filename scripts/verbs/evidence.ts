import { createWriteStream, rmSync } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type AdminCall, type AnswerSink, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { verbOf } from '../command.ts'
import { print, printProgress } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport evidence',
  make: 'make evidence [SINCE=2026-10-01] [UNTIL=2027-01-01] [OUT=evidence.zip]',
  about: `Packs the evidence of a period for an auditor into a zip: the sealed rows, who held what, grants, refusals, sign-ins, keys, checkpoints
and verifiers (docs/ledger.md#evidence). --reviewed instead records, as a row, that a pack was verified and read.`,
  options: {
    since: {
      type: 'string',
      value: 'TIME',
      description: 'RFC 3339, or a date in UTC; default: all from the first row on',
    },
    until: { type: 'string', value: 'TIME', description: 'the same; exclusive; default: all that is sealed' },
    out: {
      type: 'string',
      value: 'FILE',
      default: 'evidence.zip',
      description: 'the zip (mode 0600, must not exist)',
    },
    reviewed: {
      type: 'string',
      value: 'SIZE',
      description: 'record that you have reviewed that period under the checkpoint with this many rows',
    },
    note: { type: 'string', value: 'TEXT', description: 'a note for that row' },
    ...DOOR_OPTIONS,
  },
  notes: `${DOOR_NOTES} It requires admin.audit. The zip contains what the ledger contains: who called what, and when.`,
  run: async ({ since, until, out, reviewed, note, ...door }) => {
    const period = {
      ...(since !== undefined && { since: instantOf('--since', since) }),
      ...(until !== undefined && { until: instantOf('--until', until) }),
    }
    if (reviewed === undefined) {
      if (note !== undefined) throw new Error('--note needs --reviewed')
      await withAdministration(door, (call) => pack(call, period, out))
      print(`wrote ${out}: it is verified by its verify.py, by make verifier, and by sallyport verify`)
      return
    }
    if (!period.since || !period.until) throw new Error('--reviewed needs --since and --until')
    const checkpoint = Number(reviewed)
    if (!/^[1-9]\d{0,14}$/.test(reviewed))
      throw new Error(`--reviewed must be a number of rows, got ${JSON.stringify(reviewed)}`)
    const said = { ...period, checkpoint, ...(note !== undefined && { note }) }
    await withAdministration(door, async (call) =>
      expectStatus(await call('POST', '/v1/admin/audit/reviewed', said), 204),
    )
    print(
      `recorded: ${period.since} to ${period.until} was reviewed under the checkpoint of ${reviewed} rows`,
    )
  },
})

async function pack(call: AdminCall, period: Readonly<Record<string, string>>, out: string): Promise<void> {
  const into: AnswerSink = async (pieces) => {
    const file = createWriteStream(out, { mode: 0o600, flags: 'wx' })
    let made = false
    file.once('open', () => {
      made = true
    })
    try {
      await pipeline(Readable.from(withProgress(pieces)), file)
    } catch (error) {
      // The former file stays.
      if (made) rmSync(out, { force: true })
      throw error
    }
  }
  const query = String(new URLSearchParams(period))
  expectStatus(await call('GET', `/v1/admin/audit/evidence?${query}`, undefined, { into }), 200)
}

async function* withProgress(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const piece of pieces) {
    bytes += piece.length
    printProgress(`${(bytes / 1e6).toFixed(1)} MB`)
    yield piece
  }
  printProgress(null)
}

function instantOf(option: string, text: string): string {
  const at = new Date(text)
  if (/^\d{4}-\d\d-\d\d(?:T.*)?$/.test(text) && !Number.isNaN(at.getTime())) return at.toISOString()
  throw new Error(`${option} must be RFC 3339 or a date, got ${JSON.stringify(text)}`)
}
