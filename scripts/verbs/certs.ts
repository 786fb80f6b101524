import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readSettings } from '../../proxy/boot/settings.ts'
import { withControl } from '../admin/control.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

const certs = verbOf({
  name: 'sallyport certs',
  make: 'make certs',
  about: `Makes the organisation's CA (root and intermediate) and the TLS server certificate in the data directory if they are
missing, and shows what is there. The server certificate is for MCP_PROXY_HOSTNAMES, and a new one is made when they change.`,
  options: {},
  run: async () => {
    const settings = readSettings(process.env, process.cwd())
    // Opening the data directory, or finding a gateway that has it open, makes them.
    await withControl(settings, (call) => call('GET', '/health'))
    for (const name of ['root.crt', 'intermediate.crt', 'server.crt']) {
      const path = join(settings.dataDir, 'ca', name)
      const { subject, validTo } = new X509Certificate(await readFile(path))
      print(`${path}: ${subject.replaceAll('\n', ', ')}, valid to ${validTo}`)
    }
  },
})

const caExport = verbOf({
  name: 'sallyport ca-export',
  make: 'make ca-export',
  about: "Prints the organisation's root certificate (PEM), which clients trust the gateway by.",
  options: { chain: { type: 'boolean', description: 'print the intermediate certificate too' } },
  run: async ({ chain }) => {
    const path = chain ? '/pki/ca-chain.pem' : '/pki/ca.crt'
    const { body } = await withControl(readSettings(process.env, process.cwd()), (call) => call('GET', path))
    print(...String(body).trimEnd().split('\n'))
  },
})

export const verbs = { certs, 'ca-export': caExport }
