import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import { RESOURCE_METADATA } from '../auth/metadata.ts'
import { type BareRoute, openRoute } from '../http/route.ts'
import { describePeopleResource } from './metadata.ts'

interface PeoplePipelines {
  readonly anyone: Pipeline<Arrival>
}

export type PeopleHandlers = Parameters<typeof describePeopleResource>[0]

/** Makes the routes of the listener for people (docs/people.md). */
export function peopleRoutes(
  { anyone }: PeoplePipelines,
  handlers: PeopleHandlers,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const doors = ['', '/v1/mcp', '/v1/mcp/{resource}', '/v1/{resource}/mcp']
  return doors.map((door) =>
    openRoute('GET', `${RESOURCE_METADATA}${door}`, anyone, describePeopleResource(handlers), anonymous),
  )
}
