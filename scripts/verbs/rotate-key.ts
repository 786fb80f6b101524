import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

/** Makes the verb that has the service take a new key. `shown`: the member of the answer that is printed. */
const rotating = (name: string, path: string, shown: string, about: string) =>
  verbOf({
    name: `sallyport ${name}`,
    about,
    options: DOOR_OPTIONS,
    notes: DOOR_NOTES,
    run: async (door) => {
      const made = await withAdministration(door, async (call) => expectStatus(await call('POST', path), 200))
      print(String(made[shown]))
    },
  })

export const verbs = {
  'rotate-signing-key': rotating(
    'rotate-signing-key',
    '/v1/admin/signing-key/rotate',
    'kid',
    `Signs access tokens with a new key from now on; those of the old one stay valid until they expire (15 minutes at most).
Prints the id of the new key.`,
  ),
  'rotate-audit-key': rotating(
    'rotate-audit-key',
    '/v1/admin/audit-key/rotate',
    'key',
    `Signs the checkpoints of the ledger with a new key from now on; the previous key signs too for a day, in which
verifiers take over the new one. Prints the new verifier key.`,
  ),
}
