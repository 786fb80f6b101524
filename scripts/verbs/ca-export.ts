import { command } from '../command.ts'

const HELP = `usage: sallyport ca-export [--chain]      (or: make ca-export)

Prints the organisation's root certificate (PEM), which clients trust the gateway by; with --chain the intermediate too.
`

await command(HELP, async (args) => {
  const { readSettings } = await import('../../proxy/settings.ts')
  const { withControl } = await import('../control-client.ts')
  const unknown = args.find((arg) => arg !== '--chain')
  if (unknown !== undefined) throw new Error(`${unknown} is not an option: see --help`)
  const path = args.includes('--chain') ? '/pki/ca-chain.pem' : '/pki/ca.crt'
  const { body } = await withControl(readSettings(process.env, process.cwd()), (call) => call('GET', path))
  process.stdout.write(String(body))
})
