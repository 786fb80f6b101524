import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { readPrivateFile, writePrivateFile } from '../../certs/authority/key-store.ts'
import { isKeyName, verifierKeyText } from '../../db/ledger/tree/note.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { ignoreOutputErrors, print, printError, printNotice } from '../print.ts'
import { keysIn } from '../verifying/trusted.ts'
import { witnessServer } from '../witness/server.ts'
import { WitnessState, witness } from '../witness/witness.ts'

export const verb = verbOf({
  name: 'sallyport witness',
  about: `Runs a witness of logs (C2SP tlog-witness) on a machine that is not the gateway's: it cosigns each checkpoint that follows
from all that it has cosigned before, and no other. Prints its verifier key, which a gateway names in 45-proofs.yaml and whoever
verifies in --witness. It runs until Ctrl-C.`,
  options: {
    log: {
      type: 'string',
      multiple: true,
      value: 'VKEY|FILE',
      needed: true,
      description: 'the verifier key of a log that it witnesses, or a file of them',
    },
    name: {
      type: 'string',
      value: 'NAME',
      needed: true,
      description: 'its own name, such as witness.example.org',
    },
    state: {
      type: 'string',
      value: 'DIR',
      default: 'witness',
      description: 'where its key is, and what it has seen',
    },
    listen: {
      type: 'string',
      value: 'HOST:PORT',
      default: '127.0.0.1:8788',
      description: 'where it listens',
    },
    'tls-cert': { type: 'string', value: 'FILE', description: 'serve https, with this certificate (PEM)' },
    'tls-key': { type: 'string', value: 'FILE', description: 'and its key' },
  },
  notes: `The key is made at the first start. Keep the directory: a witness that has forgotten what it saw vouches for nothing.
Gateways reach it by https, or by http on the same machine; a reverse proxy may stand in front.`,
  run: async ({ log = [], name = '', state: directory, listen, 'tls-cert': cert, 'tls-key': tlsKey }) => {
    ignoreOutputErrors()
    if (!isKeyName(name))
      throw new WrongUsage('give its name: --name witness.example.org, without spaces and +')
    const logs = log.flatMap((given) => keysIn(given, 'log'))
    if (logs.length === 0) throw new WrongUsage('give the verifier key of a log: --log VKEY')
    if ((cert === undefined) !== (tlsKey === undefined))
      throw new WrongUsage('--tls-cert and --tls-key need each other')
    const state = await WitnessState.open(directory)
    for (const { name: origin } of logs) await state.last(origin)
    const key = await keyAt(join(directory, 'witness.key'))
    const tls =
      cert !== undefined && tlsKey !== undefined
        ? { cert: readFileSync(cert), key: readFileSync(tlsKey) }
        : null
    const server = witnessServer({
      answer: witness({ name, key, logs, state, clock: Date.now }),
      kept: (digest) => state.kept(digest),
      tls,
      onFault: (error) => printError('witness', error),
    })
    const [, host = '', port = ''] = /^(.*):(\d{1,5})$/.exec(listen) ?? []
    if (host === '') throw new WrongUsage('--listen is HOST:PORT')
    server.listen(Number(port), host.replace(/^\[|\]$/g, ''))
    await once(server, 'listening')
    const { port: bound } = server.address() as AddressInfo
    print(verifierKeyText(name, 'witness', createPublicKey(key)))
    printNotice(`witness: listening on ${tls ? 'https' : 'http'}://${host}:${bound}`)
    await Promise.race(['SIGINT', 'SIGTERM'].map((signal) => once(process, signal)))
    server.close()
    server.closeAllConnections()
    return 0
  },
})

async function keyAt(path: string): Promise<KeyObject> {
  if (existsSync(path)) return createPrivateKey(await readPrivateFile(path))
  const { privateKey } = generateKeyPairSync('ed25519')
  await writePrivateFile(path, privateKey.export({ type: 'pkcs8', format: 'pem' }).toString())
  return privateKey
}
