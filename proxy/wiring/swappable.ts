import { pipelines } from '../pipelines.ts'
import { type GatewayRouters, routers } from '../routes.ts'
import type { Configuration } from './configuration.ts'
import { createHandlers } from './handlers.ts'
import type { GatewayServices } from './services.ts'

/**
 * Holds the configuration in force and the routers made from it, and swaps them together: a request sees one
 * configuration, whole.
 */
export function swappableConfiguration(services: GatewayServices, first: Configuration) {
  const { plugins, mcp, dataDirectory } = services
  const adminApart = dataDirectory.settings.adminListen !== null
  let inForce = first
  const follow = ({ archive }: Configuration): void => {
    dataDirectory.database.archive.path = archive?.to ?? null
  }
  follow(first)
  const made = (configuration: Configuration): GatewayRouters => {
    const gates = pipelines({ configuration, inForce: () => inForce, ...plugins, mcp })
    return routers(gates, createHandlers(services, configuration, gates), adminApart)
  }
  const { runtime, admin, people, control } = made(first)
  const mounted = {
    runtime: { router: runtime },
    admin: { router: admin },
    people: { router: people },
    control: { router: control },
  }
  const mount = (configuration: Configuration): void => {
    const next = made(configuration)
    inForce = configuration
    follow(configuration)
    for (const place of ['runtime', 'admin', 'people', 'control'] as const)
      mounted[place].router = next[place]
    // A call that the one before let through is asked again before it leaves.
    dataDirectory.database.authority.advance()
  }
  return {
    configuration: () => inForce,
    mounted,
    use: (configuration: Configuration): void => {
      const before = inForce
      mount(configuration)
      void before.close()
    },
    /**
     * Makes the routers again from the configuration in force: something else that they are made of has
     * changed.
     */
    remount: (): void => mount(inForce),
  }
}
