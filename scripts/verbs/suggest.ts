import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { fetchUsage, LAST_OPTION, principalIn, windowStart } from '../admin/looking-back.ts'
import { commandOf, verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport suggest',
  takes: 'PRINCIPAL',
  about:
    'Prints the least set that would have allowed all that a principal was allowed, as a rehearsal that is ready to run.',
  options: { ...LAST_OPTION, ...DOOR_OPTIONS },
  notes: `${DOOR_NOTES} A window that was quiet suggests too little: look how many decisions it rests on.`,
  run: async ({ last, ...door }, positionals) => {
    const principal = principalIn(positionals)
    const since = windowStart(last)
    const { decisions, suggested, unused } = await withAdministration(door, (call) =>
      fetchUsage(call, principal, since),
    )
    const words = `${principal} --set ${suggested.join(',') || '""'} --last ${last}`
    const lines = [
      `${decisions} decisions since ${since} used ${suggested.join(', ') || 'nothing'}; in vain: ${unused.join(', ') || 'nothing'}`,
      commandOf(`rehearse ARGS='${words}'`, `rehearse ${words}`),
    ]
    print(...lines)
    return 0
  },
})
