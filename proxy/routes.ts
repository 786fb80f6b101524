import { adminRoutes, setupRoutes } from './admin/http/routes.ts'
import { authRoutes, isForOperators, SERVER_METADATA } from './auth/routes.ts'
import { dashboardRoutes } from './dashboard/routes.ts'
import { type Router, router } from './http/arrival.ts'
import { onSurface, type Route } from './http/route.ts'
import { metricsRoutes, publicRoutes } from './http/routes.ts'
import { llmRoutes } from './llm/routes.ts'
import { forPages, mcpRoutes } from './mcp/routes.ts'
import { openapiRoutes } from './openapi/routes.ts'
import { signInRoutes } from './operators/routes.ts'
import { type PeopleHandlers, peopleRoutes } from './people/routes.ts'
import type { GatewayPipelines } from './pipelines.ts'
import { proofRoutes } from './proofs/routes.ts'
import type { RouteHandlers } from './wiring/handlers.ts'

/**
 * The routers of the listeners and of the control socket, made from one configuration and swapped together.
 */
export interface GatewayRouters {
  readonly runtime: Router
  readonly admin: Router
  /** For people without a certificate; without a route if that listener is closed. */
  readonly people: Router
  readonly control: Router
}

/**
 * Makes the routers, with every route of every listener: each room lists its own in its `routes.ts`.
 * `adminApart`: administration has a listener of its own; else it shares the runtime's.
 */
export function routers(p: GatewayPipelines, h: RouteHandlers, adminApart: boolean): GatewayRouters {
  const { recorders } = h
  const proofs = onSurface('audit', proofRoutes(p.proofs, h.proofs, recorders))
  const { pages, listedPages } = p.mcp
  const { metadata = [], others = [] } = Object.groupBy(authRoutes(p.auth, h.auth, recorders), ({ path }) =>
    path.startsWith('/.well-known/') ? 'metadata' : 'others',
  )
  // Whoever is refused at the MCP doors is told to read the metadata.
  const auth = onSurface('auth', [...others, ...forPages(metadata, listedPages, p.anyone)])
  const runtime = [
    ...onSurface('llm', llmRoutes(p.llm, h.llm, recorders)),
    ...onSurface('mcp', forPages(mcpRoutes(p.mcp, h.mcp, recorders), listedPages, pages)),
    ...auth,
    ...proofs,
  ]
  const admin = onSurface('admin', [
    ...adminRoutes(p.admin, h.admin, recorders),
    ...metricsRoutes(p.admin.metrics, h.registry, recorders),
    ...setupRoutes(p.setup, h.setup, h.admin, recorders),
    ...signInRoutes(p.signIn, h.signIn, recorders),
    ...dashboardRoutes(p.dashboard, h.dashboard, recorders),
  ])
  const control = [
    ...onSurface('admin', [
      ...adminRoutes(p.control, h.admin, recorders),
      ...metricsRoutes(p.control.metrics, h.registry, recorders),
    ]),
    ...onSurface('audit', proofRoutes(p.control.proofs, h.proofs, recorders)),
  ]
  const every = (): readonly Route[] => [...runtime, ...common, ...admin, ...control]
  const common = onSurface('public', [...publicRoutes(p.anyone, h.public), ...openapiRoutes(p.anyone, every)])
  // The command line reads there where clients reach the gateway.
  const whereabouts = auth.filter(({ path }) => path === SERVER_METADATA)
  return {
    runtime: router([...runtime, ...common, ...(adminApart ? [] : admin)]),
    // Operators need no other listener: for tokens, to renew their certificates, and for proofs.
    admin: router([...admin, ...common, ...auth.filter(isForOperators), ...proofs]),
    people: router(h.people ? peopleDoor(p.people(), h.people, h) : []),
    control: router([...control, ...common, ...whereabouts]),
  }
}

/** Lists the routes of the listener for people: their own, and calls as on the runtime's but for who calls. */
const peopleDoor = (
  p: ReturnType<GatewayPipelines['people']>,
  people: PeopleHandlers,
  { mcp, llm, recorders }: RouteHandlers,
): readonly Route[] => [
  ...onSurface('auth', peopleRoutes(p, people, recorders)),
  ...onSurface('mcp', mcpRoutes(p.mcp, { ...mcp, metadataUrl: people.metadataUrl }, recorders)),
  ...(people.signIn.options.llm === 'off' ? [] : onSurface('llm', llmRoutes(p.llm, llm, recorders))),
]
