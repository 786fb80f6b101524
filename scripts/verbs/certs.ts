import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { command } from '../command.ts'

const HELP = `usage: sallyport certs      (or: make certs)

Makes the organisation's CA (root and intermediate) and the TLS server certificate in the data directory where they are
missing, and says what is there. The server certificate is for MCP_PROXY_HOSTNAMES and is made anew when they change.
`

await command(HELP, async (args) => {
  if (args.length > 0) throw new Error(`${args[0]} is not an option: see --help`)
  const { readSettings } = await import('../../proxy/settings.ts')
  const { withControl } = await import('../control-client.ts')
  const settings = readSettings(process.env, process.cwd())
  // Opening the data directory, or finding a gateway that has it open, is what makes them.
  await withControl(settings, (call) => call('GET', '/health'))
  for (const name of ['root.crt', 'intermediate.crt', 'server.crt']) {
    const path = join(settings.dataDir, 'ca', name)
    const { subject, validTo } = new X509Certificate(await readFile(path))
    process.stdout.write(`${path}: ${subject.replaceAll('\n', ', ')}, valid to ${validTo}\n`)
  }
})
