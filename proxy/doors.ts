import type { Actor } from '../plugins/admin-secret.ts'
import type { PinLookup } from '../plugins/pin.ts'
import type { Arrival, Plugin } from '../plugins/plugin.ts'
import type { Configuration } from './configuration.ts'
import { pipelines } from './pipelines.ts'
import type { RouteSources } from './route-sources.ts'
import { type Router, router } from './router.ts'
import { adminRoutes, publicRoutes, runtimeRoutes } from './routes.ts'

/** The routers of each place that listens, made from one configuration and swapped together. */
export interface Doors {
  readonly runtime: Router
  readonly admin: Router
  readonly control: Router
}

export interface DoorSources {
  readonly configuration: Configuration
  readonly pinned: PinLookup
  readonly operator: Plugin<Arrival, { actor: Actor }>
  /** Whether administration has a listener of its own; else it shares the runtime's. */
  readonly adminApart: boolean
  readonly routes: RouteSources
}

export function doors({ configuration, pinned, operator, adminApart, routes }: DoorSources): Doors {
  const p = pipelines({ configuration, pinned, operator })
  const admin = adminRoutes(p.admin, routes)
  const runtime = runtimeRoutes(p, routes)
  return {
    runtime: router(adminApart ? runtime : [...runtime, ...admin]),
    admin: router([...admin, ...publicRoutes(p, routes)]),
    control: router([...adminRoutes(p.control, routes), ...publicRoutes(p, routes)]),
  }
}
