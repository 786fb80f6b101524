import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { fetchUsage, LAST_OPTION, principalIn, windowStart } from '../admin/looking-back.ts'
import { commandOf, verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport suggest',
  takes: 'PRINCIPAL',
  about:
    'Prints the smallest set that would have allowed every allowed call of a principal, as a rehearsal that is ready to run.',
  options: { ...LAST_OPTION, ...DOOR_OPTIONS },
  notes: `${DOOR_NOTES} A quiet window suggests too little: check how many decisions it is based on.`,
  run: async ({ last, ...door }, positionals) => {
    const principal = principalIn(positionals)
    const since = windowStart(last)
    const { decisions, suggested, unused } = await withAdministration(door, (call) =>
      fetchUsage(call, principal, since),
    )
    const words = `${principal} --set ${suggested.join(',') || '""'} --last ${last}`
    const lines = [
      `${decisions} decisions since ${since} used ${suggested.join(', ') || 'nothing'}; held but not used: ${unused.join(', ') || 'nothing'}`,
      commandOf(`rehearse ARGS='${words}'`, `rehearse ${words}`),
    ]
    print(...lines)
    return 0
  },
})
