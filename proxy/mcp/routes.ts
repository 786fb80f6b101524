import type { McpBindingAssertion } from '../../db/mcp/bindings.ts'
import type { DecisionFacts, RouteRecorders } from '../../plugins/audit/audit.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import {
  type BareRoute,
  forkedRoute,
  gatedBranch,
  openBranch,
  openRoute,
  withRouteDoc,
} from '../http/route.ts'
import { mcpRecorder } from './gate/endpoint.ts'
import type { mcpHandler } from './handlers/dispatch.ts'
import type { endCallerSession, handshakeHandler } from './handlers/handshake.ts'
import { otherMethod, readableRoute } from './pages.ts'
import { branchOnHandshake } from './protocol/message.ts'
import { type MetadataUrl, refuseMcp } from './refusal.ts'
import { MESSAGE, RESOURCE_MESSAGE, RESOURCE_SESSION_END, SESSION_END } from './route-docs.ts'

type HandshakeFacts = Parameters<ReturnType<typeof handshakeHandler>>[0]
type WorkFacts = Parameters<ReturnType<typeof mcpHandler>>[0] & DecisionFacts

interface McpPipelines<
  Read extends HandshakeFacts,
  Handshake extends HandshakeFacts,
  Work extends WorkFacts,
  Session extends Arrival & { readonly principal: Principal },
> {
  /** Reads the message, which alone tells if it is about the connection or asks for work. */
  readonly read: Pipeline<Read>
  readonly handshake: Pipeline<Handshake, Read>
  readonly work: Pipeline<Work, Read>
  readonly session: Pipeline<Session>
}

export interface McpHandlers {
  readonly work: ReturnType<typeof mcpHandler>
  readonly standing: McpBindingAssertion
  readonly handshake: ReturnType<typeof handshakeHandler>
  readonly endSession: ReturnType<typeof endCallerSession>
  readonly metadataUrl: MetadataUrl
}

/** Makes the MCP routes (docs/protocol.md#mcp-doors). */
export function mcpRoutes<
  Read extends HandshakeFacts,
  Handshake extends HandshakeFacts,
  Work extends WorkFacts,
  Session extends Arrival & { readonly principal: Principal },
>(
  pipelines: McpPipelines<Read, Handshake, Work, Session>,
  handlers: McpHandlers,
  { calls, anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const recorder = mcpRecorder(calls, handlers.standing)
  const refuse = refuseMcp(handlers.metadataUrl)
  const handshaken = openBranch(pipelines.handshake, handlers.handshake, anonymous, refuse)
  const work = gatedBranch({ pipeline: pipelines.work, recorder, refuse }, handlers.work)
  const read = { pipeline: pipelines.read, recorder, refuse }
  const message = (path: string) => forkedRoute('POST', path, read, branchOnHandshake(handshaken, work))
  const end = (path: string) =>
    openRoute('DELETE', path, pipelines.session, handlers.endSession, anonymous, refuse)
  return [
    withRouteDoc(message('/v1/mcp'), MESSAGE),
    withRouteDoc(end('/v1/mcp'), SESSION_END),
    // The second for clients that know an MCP server by the end of its URL.
    ...['/v1/mcp/{resource}', '/v1/{resource}/mcp'].flatMap((path) => [
      withRouteDoc(message(path), RESOURCE_MESSAGE),
      withRouteDoc(end(path), RESOURCE_SESSION_END),
    ]),
  ]
}

/**
 * Lets `pages` read the answers of routes, and answers what their browsers ask before they call, without a
 * certificate. `doors`: the questions that such a request must pass all the same.
 */
export function forPages(
  routes: readonly BareRoute[],
  pages: ReadonlySet<string>,
  doors: Pipeline<Arrival>,
): readonly BareRoute[] {
  if (pages.size === 0) return routes
  const paths = Map.groupBy(routes, ({ path }) => path)
  return [
    ...routes.map((route) => readableRoute(route, pages)),
    ...[...paths].map(([path, served]) => openRoute('OTHER', path, doors, otherMethod(served, pages))),
  ]
}
