import { deletePrincipalBindings } from '../../../db/mcp/bindings.ts'
import { deleteApiKeys } from '../../../db/principals/api-keys.ts'
import { deletePins } from '../../../db/principals/pins.ts'
import { deleteSubjectKeys } from '../../../db/principals/subject-keys.ts'
import { distrustAll } from '../../../db/principals/trusted-cas.ts'
import { blankPrincipal, deleteUser, setSpiffeBundle } from '../../../db/principals/write.ts'
import { changeAuthor } from '../operation/change.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { capabilityToEnroll } from '../operation/kinds.ts'
import { emptyOperation } from '../operation/operation.ts'
import { idParams } from '../operation/shapes.ts'
import { changeAuthority } from './authority.ts'
import { withoutAccess } from './principals.ts'
import { principalByParams } from './view.ts'

const NOTHING = { capabilities: [], is_active: false, thumbprints: [], dpop_jkts: [] }

/**
 * POST …/{id}/erase: takes a principal out of service for good and destroys its personal data, with one row
 * (docs/ledger.md#erasure). Of a user nothing is left but its pseudonym; others keep their name and row. Does
 * NOT reach log files, back-ups and earlier exports.
 */
export const erase = (kind: PrincipalKind) =>
  emptyOperation({
    name: `erase${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.erased`,
    object: principalByParams(kind),
    summary: `Takes the ${kind.type} out of service for good, and destroys its personal data and keys.`,
    takes: { params: idParams },
    gives: (_context, { params: { id } }) => ({ principal: { principal_id: id, is_active: false } }),
    resembles: (context, { params: { id } }) => withoutAccess(context, kind, id),
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      const { database, subjectKeys } = context
      const { type } = kind
      const erased = await changeAuthority(context, kind, caller, { id, ifMatch }, ({ revision }) => ({
        action: `${type}.erased`,
        next: NOTHING,
        detail: {},
        statements: [
          type === 'user'
            ? deleteUser(database, id, revision)
            : blankPrincipal(database, { type, id, revision, ...changeAuthor(caller) }),
          ...(type === 'agent' ? [setSpiffeBundle(database, id, null), distrustAll(database, id)] : []),
          deletePins(database, type, id),
          deleteApiKeys(database, { type, id }),
          deletePrincipalBindings(database, type, id),
          deleteSubjectKeys(database, type, id),
        ],
      }))
      subjectKeys.forget(erased.principal_ref)
    },
  })
