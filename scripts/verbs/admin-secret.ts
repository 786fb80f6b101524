import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { command } from '../command.ts'

const HELP = `usage: sallyport admin-secret [--stdin]      (or: make admin-secret)

Sets the operator secret that X-Admin-Secret must carry, and ends the one before at once. Without --stdin a random one is
made and printed this once; with it the first line of standard input is taken (12 to 72 bytes). The service keeps a hash.
Works beside a running gateway and without one. From then on MCP_PROXY_ADMIN_SECRET is not consulted any more.
`

await command(HELP, async (args) => {
  const { readSettings } = await import('../../proxy/settings.ts')
  const { expect, withControl } = await import('../control-client.ts')
  const unknown = args.find((arg) => arg !== '--stdin')
  if (unknown !== undefined) throw new Error(`${unknown} is not an option: see --help`)
  const given = args.includes('--stdin')
  const secret = given
    ? ((await text(process.stdin)).split('\n')[0] ?? '')
    : randomBytes(24).toString('base64url')
  await withControl(readSettings(process.env, process.cwd()), async (call) =>
    expect(await call('POST', '/v1/admin/secret/rotate', { new_secret: secret }), 204),
  )
  process.stdout.write(given ? 'the operator secret is set\n' : `${secret}\n`)
  if (!given)
    process.stderr.write('the operator secret is set; it is shown this once and stored as a hash only\n')
})
