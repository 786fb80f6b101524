import { z } from 'zod'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import { operation } from '../operation/operation.ts'

/** POST /v1/admin/audit-key/rotate: signs checkpoints with a new key, and for a day by the one before too. */
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
  status: 200,
  reasons: [],
  run: async ({ configDigest, rotateAuditKey: rotate }, _input, { id, at, actor }) => {
    const key = await rotate((vkey) => ({
      ...serviceEntry('audit.key_rotated', 'success', { vkey, via: actor.via }, at, configDigest),
      request_id: id,
      principal_id: actor.id,
      principal_type: 'operator',
    }))
    return { value: { key } }
  },
})

/** POST /v1/admin/signing-key/rotate: signs access tokens with a new key; those of the old one run out. */
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
  status: 200,
  reasons: [],
  run: async ({ configDigest, rotateSigningKey: rotate }, _input, { id, at, actor }) => {
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
