import type { Handlers } from './handlers.ts'
import { type Router, router } from './http/router.ts'
import { type PipelineSources, pipelines } from './pipelines.ts'
import { adminRoutes, publicRoutes, runtimeRoutes, setupRoutes } from './routes.ts'

/** The routers of each place that listens, made from one configuration and swapped together. */
export interface Routers {
  readonly runtime: Router
  readonly admin: Router
  readonly control: Router
}

export interface RouterSources {
  /** Of the questions asked at each door. */
  readonly questions: PipelineSources
  /** Whether administration has a listener of its own; else it shares the runtime's. */
  readonly adminApart: boolean
  readonly routes: Handlers
}

export function doors({ questions, adminApart, routes }: RouterSources): Routers {
  const p = pipelines(questions)
  const admin = [...adminRoutes(p.admin, routes), ...setupRoutes(p, routes)]
  const runtime = runtimeRoutes(p, routes)
  return {
    runtime: router(adminApart ? runtime : [...runtime, ...admin]),
    admin: router([...admin, ...publicRoutes(p, routes)]),
    control: router([...adminRoutes(p.control, routes), ...publicRoutes(p, routes)]),
  }
}
