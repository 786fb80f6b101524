import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { type PrintLines, subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { verbOf } from '../command.ts'
import { print, printNotice } from '../print.ts'

const SECRET = '/v1/admin/secret'

const adminSecret = verbOf({
  name: 'sallyport admin-secret',
  make: 'make admin-secret',
  about: `Sets the operator secret that X-Admin-Secret must contain. The previous secret stops working at once. Without --stdin,
a random secret is made, and printed only this once. The service keeps a hash.`,
  options: {
    stdin: { type: 'boolean', description: 'take the first line of standard input (12 to 72 bytes)' },
    ...DOOR_OPTIONS,
  },
  notes: `${DOOR_NOTES} From then on MCP_PROXY_ADMIN_SECRET is ignored.`,
  run: async ({ stdin: given, ...door }) => {
    const chosen = given
      ? ((await text(process.stdin)).split('\n')[0] ?? '')
      : randomBytes(24).toString('base64url')
    await withAdministration(door, async (call) =>
      expectStatus(await call('POST', `${SECRET}/rotate`, { new_secret: chosen }), 204),
    )
    print(given ? 'the operator secret is set' : chosen)
    if (!given) printNotice('the operator secret is set; it is shown only this once, and stored as a hash')
  },
})

const show = plainSubcommand('whether it is set, in service, and still used', async (call, say) => {
  const { is_set: isSet, disabled, last_used_at: used } = expectStatus(await call('GET', SECRET), 200)
  say(
    `set: ${isSet === true ? 'yes' : 'no'}`,
    `in service: ${disabled === true ? 'no' : 'yes'}`,
    `last used since there are operators: ${typeof used === 'string' ? used : 'never'}`,
  )
})

const disable = plainSubcommand(
  'disable it: from now on only operators administer; this needs an owner',
  async (call, say) => {
    expectStatus(await call('POST', `${SECRET}/disable`), 204)
    say('the operator secret is disabled')
  },
)

const enable = plainSubcommand('enable it again: on the gateway’s machine only', async (call, say) => {
  expectStatus(await call('POST', `${SECRET}/enable`), 204)
  say('the operator secret is enabled')
})

function plainSubcommand(about: string, work: (call: AdminCall, say: PrintLines) => Promise<void>) {
  return subcommandOf({ takes: '', about, run: ({ call, say }) => work(call, say) })
}

const secret = verbGroup({
  name: 'secret',
  about: `Disables the operator secret (X-Admin-Secret), and enables it again. ${DOOR_NOTES}`,
  verbs: { show, disable, enable },
  notes: 'To set a new one, use sallyport admin-secret.',
})

export const verbs = { 'admin-secret': adminSecret, secret }
