import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { ProofReader } from '../../plugins/operators/proof-reader.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import type { RouteDoc } from '../http/doc.ts'
import { type BareRoute, openRoute, withRouteDoc } from '../http/route.ts'
import type { ProofHandlers } from './handlers.ts'
import { CHECKPOINT, KEY, PROOFS, TILE } from './route-docs.ts'

/**
 * Makes the routes of the ledger's proofs: hashes for everybody who is known, leaves for whom they concern.
 */
export function proofRoutes(
  pipeline: Pipeline<Arrival & ProofReader>,
  { key, checkpoint, tile, proofs }: ProofHandlers,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const route = (path: string, handler: ProofHandlers[keyof ProofHandlers], doc: RouteDoc) =>
    withRouteDoc(openRoute('GET', path, pipeline, handler, anonymous), doc)
  // N has three digits in each segment, and the width of a tile that is not full comes last.
  const tiles = ['{n}', '{n}/{n1}', '{n}/{n1}/{n2}', '{n}/{n1}/{n2}/{n3}', '{n}/{n1}/{n2}/{n3}/{n4}']
  return [
    route('/v1/audit/key', key, KEY),
    route('/v1/audit/checkpoint', checkpoint, CHECKPOINT),
    ...tiles.map((n) => route(`/v1/audit/tile/{level}/${n}`, tile, TILE)),
    route('/v1/audit/proofs/{request_id}', proofs, PROOFS),
  ]
}
