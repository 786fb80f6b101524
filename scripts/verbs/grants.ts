import type { z } from 'zod'
import type { endGrants, listUserGrants } from '../../proxy/admin/principals/grants.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

type GrantList = z.output<typeof listUserGrants.output>
type EndedGrants = z.output<typeof endGrants.output>

const list = subcommandOf({
  takes: 'USER',
  about: 'what a user has allowed clients, the newest first',
  misuse: 'name one user: sallyport grants list acme::user::alice',
  options: JSON_OPTION,
  run: async ({ call, say, args: [user], values: { json } }) => {
    const path = `/v1/admin/users/${encodeURIComponent(user)}/grants`
    const { grants } = expectStatus<GrantList>(await call('GET', path), 200)
    if (json) return say(...jsonLines(grants))
    if (grants.length === 0) return say(`${user} has granted nothing`)
    say(
      ...alignColumns([
        ['GRANT', 'CLIENT', 'GRADE', 'SCOPE', 'UNTIL'],
        ...grants.map(({ grant, client, bound, scope, expires_at: until }) => [
          ...[grant, client.host, bound, scope?.join(' ') ?? 'all', until],
        ]),
      ]),
    )
  },
})

const end = subcommandOf({
  takes: '[GRANT]',
  about: 'end one grant, or those of a user, of the clients of a host, or all, at once',
  misuse: 'name one grant, or give --user, --client-host or --all',
  options: {
    user: { type: 'string', value: 'ID', description: 'all of this user' },
    'client-host': { type: 'string', value: 'HOST', description: 'all of the clients of this host' },
    all: { type: 'boolean', default: false, description: 'all there are' },
  },
  run: async ({ call, say, args: [grant], values: { user, 'client-host': host, all } }) => {
    const named = [
      ...(user === undefined ? [] : [{ user }]),
      ...(host === undefined ? [] : [{ client_host: host }]),
      ...(all ? [{ all: true }] : []),
    ]
    const [body, another] = named
    if (named.length + (grant === undefined ? 0 : 1) !== 1 || another)
      throw new Error('name one grant, or give one of --user, --client-host and --all')
    if (grant !== undefined) {
      expectStatus(await call('DELETE', `/v1/admin/grants/${encodeURIComponent(grant)}`), 204)
      return say(`${grant} is ended`)
    }
    let ended = 0
    for (let more = true; more; ) {
      const now = expectStatus<EndedGrants>(await call('POST', '/v1/admin/grants/end', body), 200)
      ended += now.ended
      more = now.more
    }
    say(`${ended} grants are ended`)
  },
})

export const verb = verbGroup({
  name: 'grants',
  about: `Shows and ends what people have allowed clients that call without a certificate. ${DOOR_NOTES}`,
  verbs: { list, end },
  notes: 'The next call by a grant that has ended is refused, and its streams are cut.',
})
