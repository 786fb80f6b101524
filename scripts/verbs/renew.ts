import { readFile } from 'node:fs/promises'
import { readIdentity } from '../client/identity/identity.ts'
import {
  certificateLife,
  type RenewedCertificate,
  renewByOwnLeaf,
  renewIdentity,
} from '../client/renewal/renew.ts'
import { followTrust } from '../client/renewal/trust.ts'
import { GATEWAY_OPTION, IDENTITY_OPTION, verbOf } from '../command.ts'
import { print } from '../print.ts'

const DAY_MS = 86_400_000

export const verb = verbOf({
  name: 'sallyport renew',
  about: `Renews the certificate of an identity before it ends: by that certificate, for a new key that never leaves this
machine. The gateway allows this in the last third of its life, and while its CA is being replaced; earlier there is nothing to do,
and the exit code is 0: run it daily. org-ca.crt follows the CA.
The sidecar does it by itself.`,
  options: {
    ...IDENTITY_OPTION,
    'if-within': {
      type: 'string',
      value: 'DAYS',
      description: 'only if it ends within this many days',
    },
    cert: {
      type: 'string',
      value: 'FILE',
      description:
        'of an agent (byoca): the certificate that its own CA has renewed, with its intermediates (PEM)',
    },
    key: {
      type: 'string',
      value: 'FILE',
      description: 'the key of that one (PEM); it stays on this machine',
    },
    ...GATEWAY_OPTION,
  },
  notes: `agent.crt and agent.key are replaced when both are whole; until then, and after every failure, the old ones stay. The
previous certificate stays valid for the grace that the gateway is configured with (rotation_grace_hours). A certificate of your
own CA is renewed by that CA: give the new one with --cert and --key while the old one is valid. An SVID needs nobody. One that
has ended is replaced by an operator.`,
  run: async ({ identity: directory, 'if-within': within, cert, key, gateway }) => {
    if (!directory) throw new Error('name the identity: --identity DIR')
    if ((cert === undefined) !== (key === undefined)) throw new Error('give both: --cert FILE --key FILE')
    if (cert !== undefined && key !== undefined) {
      const leaf = { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') }
      print(renewedLine(directory, await renewByOwnLeaf(directory, leaf, gateway)))
      return
    }
    const { renewableFrom, notAfter } = certificateLife(readIdentity(directory, gateway))
    // A gateway that cannot be asked is told of when there is something to renew.
    const isReplaced = await followTrust(directory, gateway).catch(() => false)
    const from = isReplaced
      ? 0
      : Math.max(renewableFrom, within === undefined ? 0 : notAfter - daysOf(within) * DAY_MS)
    const now = Date.now()
    if (now > notAfter) {
      throw new Error(`${directory} ended on ${day(notAfter)}: ask an operator for a new certificate`)
    }
    if (now < from) {
      print(`${directory} is valid until ${day(notAfter)}, and can be renewed from ${day(from)} on`)
      return
    }
    print(renewedLine(directory, await renewIdentity(directory, gateway)))
  },
})

const renewedLine = (
  directory: string,
  { notAfter, previousValidUntil: before }: RenewedCertificate,
): string =>
  `renewed ${directory}: valid until ${day(notAfter)}; the previous certificate ${
    before === null ? 'has ended' : `is accepted until ${before}`
  }`

const day = (at: number): string => new Date(at).toISOString().slice(0, 10)

function daysOf(text: string): number {
  if (/^\d{1,5}$/.test(text)) return Number(text)
  throw new Error(`--if-within must be a number of days, got ${JSON.stringify(text)}`)
}
