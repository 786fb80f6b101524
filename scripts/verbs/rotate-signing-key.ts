import { command } from '../command.ts'

const HELP = `usage: sallyport rotate-signing-key

Access tokens are signed with a new key from now on; those of the old one stay valid until they expire (15 minutes at most).
Works beside a running gateway and without one. Prints the id of the new key.
`

await command(HELP, async (args) => {
  if (args.length > 0) throw new Error(`${args[0]} is not an option: see --help`)
  const { readSettings } = await import('../../proxy/settings.ts')
  const { expect, withControl } = await import('../control-client.ts')
  const { kid } = await withControl(readSettings(process.env, process.cwd()), async (call) =>
    expect(await call('POST', '/v1/admin/signing-key/rotate'), 200),
  )
  process.stdout.write(`${String(kid)}\n`)
})
