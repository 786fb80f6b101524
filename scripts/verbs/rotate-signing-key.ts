import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport rotate-signing-key',
  about: `Signs access tokens with a new key from now on; those of the old one stay valid until they expire (15 minutes at most).
Prints the id of the new key.`,
  options: DOOR_OPTIONS,
  notes: DOOR_NOTES,
  run: async (door) => {
    const { kid } = await withAdministration(door, async (call) =>
      expectStatus(await call('POST', '/v1/admin/signing-key/rotate'), 200),
    )
    print(String(kid))
  },
})
