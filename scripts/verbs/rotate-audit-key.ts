import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport rotate-audit-key',
  about: `Signs the checkpoints of the ledger with a new key from now on; the previous key signs too for a day, in which
verifiers take over the new one. Prints the new verifier key.`,
  options: DOOR_OPTIONS,
  notes: DOOR_NOTES,
  run: async (door) => {
    const { key } = await withAdministration(door, async (call) =>
      expectStatus(await call('POST', '/v1/admin/audit-key/rotate'), 200),
    )
    print(String(key))
  },
})
