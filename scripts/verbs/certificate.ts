import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { alignColumns, jsonLines } from '../admin/printable.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { verbGroup } from '../admin/subcommands.ts'
import { commandOf } from '../command.ts'

interface HonouredCertificate {
  readonly cert_thumbprint: string
  readonly cert_not_after: string
  readonly current: boolean
  readonly honoured_until: string | null
}

/** Finds the path of a principal's certificates by its id, which says its kind. */
function certificatesOf(id: string): string {
  const kind = /::(user|workload|operator)::/.exec(id)?.[1] ?? 'agent'
  return `/v1/admin/${kind}s/${encodeURIComponent(id)}/certificates`
}

const honoured = async (call: AdminCall, id: string): Promise<readonly HonouredCertificate[]> =>
  expectStatus(await call('GET', certificatesOf(id)), 200)

const list = subcommandOf({
  takes: 'ID',
  about: 'the certificates by which somebody can call: the current one, and those in their grace',
  options: { json: { type: 'boolean', default: false, description: 'as the admin API says it' } },
  work: ({ json }, [id, ...rest]) => {
    if (!id || rest.length > 0) throw new Error('give one id: sallyport certificate list acme::my-agent')
    return async (call, say) => {
      const all = await honoured(call, id)
      if (json) return say(...jsonLines(all))
      if (all.length === 0) return say(`${id} has no certificate`)
      const rows = all.map((one) => [
        ...[one.cert_thumbprint, one.cert_not_after.slice(0, 10)],
        one.honoured_until === null ? 'current' : `replaced, accepted until ${one.honoured_until}`,
      ])
      say(...alignColumns([['THUMBPRINT', 'ENDS', 'STATE'], ...rows]))
    }
  },
})

const end = subcommandOf({
  takes: 'ID THUMBPRINT',
  about:
    'end one at once and for good, with the calls under way by it; the beginning of its thumbprint is enough',
  options: {},
  work: (_, [id, prefix, ...rest]) => {
    if (!id || !prefix || rest.length > 0)
      throw new Error('name one: sallyport certificate end acme::my-agent THUMBPRINT')
    return async (call, say) => {
      const found = (await honoured(call, id)).filter((one) => one.cert_thumbprint.startsWith(prefix))
      const [one, ...more] = found
      if (!one || more.length > 0)
        throw new Error(
          `${one ? 'more than one' : 'no'} certificate of ${id} has a thumbprint that begins with ${prefix}`,
        )
      expectStatus(await call('DELETE', `${certificatesOf(id)}/${one.cert_thumbprint}`), 204)
      say(`${one.cert_thumbprint} of ${id} has ended`)
    }
  },
})

const { perform: _, ...verb } = verbGroup({
  name: 'certificate',
  about: `Shows by which certificates somebody can call, and ends one that was lost or stolen. ${DOOR_NOTES}`,
  verbs: { list, end },
  notes: 'A new one in its place: Rotate on its page, or sallyport operator rotate NAME --grace-hours 0.',
  helpCommand: commandOf('sallyport ARGS="certificate --help"', 'certificate --help'),
})

export { verb }
