import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { verbOf } from '../command.ts'
import { print, printNotice } from '../print.ts'

export const verb = verbOf({
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
    const secret = given
      ? ((await text(process.stdin)).split('\n')[0] ?? '')
      : randomBytes(24).toString('base64url')
    await withAdministration(door, async (call) =>
      expectStatus(await call('POST', '/v1/admin/secret/rotate', { new_secret: secret }), 204),
    )
    print(given ? 'the operator secret is set' : secret)
    if (!given) printNotice('the operator secret is set; it is shown only this once, and stored as a hash')
  },
})
