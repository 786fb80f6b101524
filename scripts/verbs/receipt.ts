import { writeFileSync } from 'node:fs'
import { fetchReceipt } from '../client/receipt.ts'
import { GATEWAY_OPTION, IDENTITY_OPTION, verbOf, WrongUsage } from '../command.ts'
import { print } from '../print.ts'
import { shellQuoted, shellWord } from '../shell-word.ts'

export const verb = verbOf({
  name: 'sallyport receipt',
  takes: 'REQUEST_ID',
  misuse: 'give one request id',
  make: 'make receipt ID=req_… IDENTITY=DIR [OUT=receipt.json]',
  about: `Fetches the receipt of a call of an identity: the rows that the ledger has of it, their proofs under a signed checkpoint, and the
salts that open what they commit to. REQUEST_ID is the call's x-request-id. Keep the body that was sent next to it: with both,
anybody can show what was judged and recorded then, offline.`,
  options: {
    ...IDENTITY_OPTION,
    out: {
      type: 'string',
      value: 'FILE',
      description: 'where to write it (mode 0600, must not exist); default: REQUEST_ID.json',
    },
    ...GATEWAY_OPTION,
  },
  notes: `A call is sealed within a second, and its outcome a second after its answer has ended; this waits for both, 15 s at most. Only the
principal that made a call gets its receipt, and operators who hold admin.audit.`,
  run: async ({ identity, out, gateway }, [id]) => {
    if (!/^[\w-]{1,128}$/.test(id)) throw new WrongUsage(`${JSON.stringify(id)} is no request id`)
    if (!identity) throw new WrongUsage('name the identity that made the call: --identity DIR')
    const { receipt, verifierKey, ended } = await fetchReceipt(identity, id, gateway)
    const file = out ?? `${id}.json`
    writeFileSync(file, `${receipt}\n`, { mode: 0o600, flag: 'wx' })
    // The key is the gateway's word: quoted, it cannot be more than a word of the command.
    const keys = verifierKey.split('\n').map((key) => `--key ${shellQuoted(key)}`)
    print(
      `wrote ${file}${ended ? '' : ': the call has not ended yet, so its outcome is not in it'}`,
      'verify it with the body that was sent, and a key that you have from elsewhere than this gateway if you can:',
      `  sallyport verify ${shellWord(file)} --body BODY ${keys.join(' ')}`,
    )
  },
})
