import { readSettings } from '../../proxy/boot/settings.ts'
import { withControl } from '../admin/control.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
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
