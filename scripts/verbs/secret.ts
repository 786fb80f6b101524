import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { verbGroup } from '../admin/subcommands.ts'
import { commandOf } from '../command.ts'

const SECRET = '/v1/admin/secret'

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
  return subcommandOf({ takes: '', about, options: {}, work: () => work })
}

const { perform: _, ...verb } = verbGroup({
  name: 'secret',
  about: `Disables the operator secret (X-Admin-Secret), and enables it again. ${DOOR_NOTES}`,
  verbs: { show, disable, enable },
  notes: 'To set a new one, use sallyport admin-secret.',
  helpCommand: commandOf('sallyport ARGS="secret --help"', 'secret --help'),
})

export { verb }
