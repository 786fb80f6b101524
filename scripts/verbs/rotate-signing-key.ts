import { readSettings } from '../../proxy/settings.ts'
import { verbOf } from '../command.ts'
import { expect, withControl } from '../control-client.ts'

export const verb = verbOf({
  name: 'sallyport rotate-signing-key',
  about: `Signs access tokens with a new key from now on; those of the old one stay valid until they expire (15 minutes at most).
Works beside a running gateway and without one. Prints the id of the new key.`,
  options: {},
  run: async () => {
    const { kid } = await withControl(readSettings(process.env, process.cwd()), async (call) =>
      expect(await call('POST', '/v1/admin/signing-key/rotate'), 200),
    )
    process.stdout.write(`${String(kid)}\n`)
  },
})
