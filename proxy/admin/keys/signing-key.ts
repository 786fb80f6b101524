import { z } from 'zod'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { operation } from '../operation/operation.ts'

/**
 * Makes the rotation of a key that refuses with `conflict` if the passphrase was rotated since this gateway started:
 * what it seals would open for nobody.
 */
const refusedIfResealed =
  <Entry>(rotate: (entry: Entry) => Promise<string>) =>
  async (entry: Entry): Promise<string> => {
    try {
      return await rotate(entry)
    } catch (cause) {
      if (!(cause instanceof LedgerError) || cause.code !== 'conflict') throw cause
      throw new Refusal('conflict', {
        cause,
        message:
          'The passphrase was rotated while this gateway ran. Restart it with the new one, and try again.',
      })
    }
  }

export const rotateAuditKey = operation({
  name: 'rotateAuditKey',
  demands: 'admin.operators',
  action: 'audit.key_rotated',
  twoPersonKind: 'settings',
  cannotWait:
    'This change needs a second operator, but it cannot wait for one. On the gateway’s own machine, run sallyport rotate-audit-key.',
  summary: 'Signs checkpoints of the ledger with a new key. The previous key signs too for one day.',
  takes: {},
  output: z.strictObject({ key: z.string().meta({ description: 'The verifier key (C2SP signed-note).' }) }),
  reasons: ['conflict'],
  run: async ({ configDigest, rotateAuditKey }, _input, { id, at, actor }) => {
    const rotate = refusedIfResealed(rotateAuditKey)
    const key = await rotate((vkey) => ({
      ...serviceEntry('audit.key_rotated', 'success', { vkey, via: actor.via }, at, configDigest),
      request_id: id,
      principal_id: actor.id,
      principal_type: 'operator',
    }))
    return { value: { key } }
  },
})

export const rotateTokenSigningKey = operation({
  name: 'rotateSigningKey',
  demands: 'admin.operators',
  action: 'admin.signing_key_rotated',
  twoPersonKind: 'settings',
  cannotWait:
    'This change needs a second operator, but it cannot wait for one. On the gateway’s own machine, run make rotate-signing-key.',
  summary: 'Signs access tokens with a new key. Tokens of the previous key stay valid until they expire.',
  takes: {},
  output: z.strictObject({ kid: z.string() }),
  reasons: ['conflict'],
  run: async ({ configDigest, rotateSigningKey }, _input, { id, at, actor }) => {
    const rotate = refusedIfResealed(rotateSigningKey)
    const kid = await rotate((next) => ({
      ...serviceEntry(
        'admin.signing_key_rotated',
        'success',
        { kid: next, via: actor.via },
        at,
        configDigest,
      ),
      request_id: id,
      principal_id: actor.id,
      principal_type: 'operator',
    }))
    return { value: { kid } }
  },
})
