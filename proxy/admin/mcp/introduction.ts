import { resourceAuthority } from '../../../db/mcp/authority.ts'
import { storeServerFacts } from '../../../db/mcp/server-facts.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import {
  instructionsDigest,
  introductionDigest,
  introductionOf,
  pendingIntroduction,
} from '../../mcp/pinning/introduction.ts'
import { commitChange } from '../operation/change.ts'
import { operation } from '../operation/operation.ts'
import { resourceParams } from '../operation/shapes.ts'
import { mcpResource, resourceAnswer, withLatestResource } from './one-resource.ts'
import { approval } from './tools.ts'
import { resourceDetail } from './view.ts'

/**
 * POST …/{resource_id}/server/approve: puts in force the waiting introduction of that digest, with one audit
 * row in the same transaction. Refuses another one with `precondition_failed`.
 */
export const approveIntroduction = operation({
  name: 'approveMcpServer',
  demands: 'admin.tools',
  action: 'mcp_resource.updated',
  object: (context, { params: { resource_id: id } }) => mcpResource(context, id),
  conditional: true,
  summary: 'Approves what a server says about itself, with its instructions, by the digest that was read.',
  takes: { params: resourceParams, body: approval },
  output: resourceDetail,
  status: 200,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { resource_id: id }, body: { digest }, ifMatch }, caller) => {
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const { server_facts: facts } = resource
      const pending = pendingIntroduction(facts)
      if (pending === null)
        throw new Refusal('conflict', { message: 'This server says nothing new about itself.' })
      if (introductionDigest(pending) !== digest) throw new Refusal('precondition_failed')
      const { serverInfo: _, instructions: __, waits: ___, ...others } = facts ?? {}
      const approved = introductionOf(facts)
      await commitChange(context, caller, {
        action: 'mcp_resource.updated',
        detail: {
          subject: id,
          ...resourceAuthority(resource, resource.revision + 1),
          fields: { server_sha256: digest, instructions_sha256: instructionsDigest(pending) },
          previous: {
            server_sha256: introductionDigest(approved),
            instructions_sha256: instructionsDigest(approved),
          },
        },
        statements: [
          // Read from JSON: nothing else is in them.
          storeServerFacts(
            context.database,
            resource,
            { ...(others as JsonObject), ...pending },
            caller.actor.id,
          ),
        ],
      })
    })
    return resourceAnswer(context, id)
  },
})
