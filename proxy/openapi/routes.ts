import { z } from 'zod'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import type { RouteDoc } from '../http/doc.ts'
import { type BareRoute, openRoute, type Route, withRouteDoc } from '../http/route.ts'
import { serveOpenapi } from './document.ts'

export const openapiRoutes = (
  anyone: Pipeline<Arrival>,
  every: () => readonly Route[],
): readonly BareRoute[] => [
  withRouteDoc(openRoute('GET', '/openapi.json', anyone, serveOpenapi(every)), OPENAPI),
]

const OPENAPI: RouteDoc = {
  name: 'getOpenapi',
  summary: 'This document.',
  caller: 'anyone',
  answers: {
    200: {
      description: 'OpenAPI 3.1.',
      content: [{ schema: z.looseObject({ openapi: z.literal('3.1.1') }) }],
    },
  },
  reasons: ['overloaded'],
}
