import { principalPath } from '../admin/arguments.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

interface HonouredCertificate {
  readonly cert_thumbprint: string
  readonly cert_not_after: string
  readonly current: boolean
  readonly honoured_until: string | null
}

const certificatesOf = (id: string): string => `${principalPath(id)}/certificates`

const honoured = async (call: AdminCall, id: string): Promise<readonly HonouredCertificate[]> =>
  expectStatus(await call('GET', certificatesOf(id)), 200)

const list = subcommandOf({
  takes: 'ID',
  about: 'the certificates by which somebody can call: the current one, and those in their grace',
  misuse: 'give one id: sallyport certificate list acme::my-agent',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json }, args: [id] }) => {
    const all = await honoured(call, id)
    if (json) return say(...jsonLines(all))
    if (all.length === 0) return say(`${id} has no certificate`)
    const rows = all.map((one) => [
      ...[one.cert_thumbprint, one.cert_not_after.slice(0, 10)],
      one.honoured_until === null ? 'current' : `replaced, accepted until ${one.honoured_until}`,
    ])
    say(...alignColumns([['THUMBPRINT', 'ENDS', 'STATE'], ...rows]))
  },
})

const end = subcommandOf({
  takes: 'ID THUMBPRINT',
  about:
    'end one at once and for good, with the calls under way by it; the beginning of its thumbprint is enough',
  misuse: 'name one: sallyport certificate end acme::my-agent THUMBPRINT',
  run: async ({ call, say, args: [id, prefix] }) => {
    const found = (await honoured(call, id)).filter((one) => one.cert_thumbprint.startsWith(prefix))
    const [one, ...more] = found
    if (!one || more.length > 0)
      throw new Error(
        `${one ? 'more than one' : 'no'} certificate of ${id} has a thumbprint that begins with ${prefix}`,
      )
    expectStatus(await call('DELETE', `${certificatesOf(id)}/${one.cert_thumbprint}`), 204)
    say(`${one.cert_thumbprint} of ${id} has ended`)
  },
})

export const verb = verbGroup({
  name: 'certificate',
  about: `Shows by which certificates somebody can call, and ends one that was lost or stolen. ${DOOR_NOTES}`,
  verbs: { list, end },
  notes: 'A new one in its place: Rotate on its page, or sallyport operator rotate NAME --grace-hours 0.',
})
