import { z } from 'zod'
import type { RefusalReason } from '../../plugins/refusal.ts'
import type { InputSchemas, Operation } from '../admin/operation/operation.ts'
import { refusedPage } from '../dashboard/frame/refused.ts'
import { EXAMPLE_ID, type RouteDoc } from '../http/doc.ts'

const HTML = { media: 'text/html', schema: z.string() }

// Who is not signed in is sent elsewhere, which is no refusal to whoever reads this.
const COMMON: readonly RefusalReason[] = [
  'origin_not_allowed',
  'principal_deactivated',
  'capability_missing',
  'overloaded',
  'plugin_failed',
]
const OF_FORMS: readonly RefusalReason[] = [
  'csrf_invalid',
  'body_invalid',
  'body_too_large',
  'audit_unavailable',
]

const rendered: RouteDoc['refuse'] = (refusal) =>
  refusedPage(refusal, { id: EXAMPLE_ID, path: '/proxy', query: '', method: 'GET', headers: {} } as never)

/** Describes a page of the dashboard. */
export const pageDoc = (
  name: string,
  summary: string,
  demands: string,
  ...reasons: RefusalReason[]
): RouteDoc => ({
  name,
  summary,
  caller: 'operator',
  demands,
  answers: {
    200: { description: 'The page.', content: [HTML] },
    303: { description: 'Nobody is signed in.', headers: { Location: '/proxy/sign-in.' } },
  },
  reasons: [...COMMON, ...reasons],
  refuse: rendered,
})

/** Describes a form of such a page, by the operation that it asks for. */
export const formDoc = (
  name: string,
  { summary, demands, reasons }: Pick<Operation<InputSchemas, unknown>, 'summary' | 'demands' | 'reasons'>,
): RouteDoc => ({
  name,
  summary: `By a form of the dashboard. ${summary}`,
  caller: 'operator',
  demands,
  body: {
    media: 'application/x-www-form-urlencoded',
    schema: z.looseObject({ csrf: z.string(), if_match: z.string().exactOptional() }),
  },
  answers: {
    200: { description: 'What came of it, where there is something to show.', content: [HTML] },
    303: { description: 'Done.', headers: { Location: 'The page that shows it.' } },
  },
  reasons: [...new Set([...COMMON, ...OF_FORMS, 'body_unprocessable' as const, ...reasons])],
  refuse: rendered,
})

/** Describes what pages fetch. */
export const jsonDoc = ({ name, summary, demands, output }: Operation<InputSchemas, unknown>): RouteDoc => ({
  name,
  summary,
  caller: 'operator',
  demands,
  answers: { 200: { description: summary, content: [{ schema: output }] } },
  reasons: ['signed_out', ...COMMON],
})

/** Describes a stream of server-sent events that a page follows. */
export const eventsDoc = (name: string, summary: string, demands: string): RouteDoc => ({
  name,
  summary,
  caller: 'operator',
  demands,
  answers: {
    200: {
      description: 'Events, until somebody ends them.',
      content: [{ media: 'text/event-stream', schema: z.string() }],
    },
  },
  reasons: ['signed_out', ...COMMON],
})

/** Describes what anybody may ask for: setting up, and what pages load. */
export const openDoc = (
  name: string,
  summary: string,
  media: string,
  ...reasons: readonly RefusalReason[]
): RouteDoc => ({
  name,
  summary,
  caller: 'anyone',
  answers: { 200: { description: 'It.', content: [{ media, schema: z.string() }] } },
  reasons,
  refuse: rendered,
})

/** A file that a page hands out; what stands against it is a page. */
export const downloadDoc = (
  media: string,
  ...[name, summary, demands, ...reasons]: Parameters<typeof pageDoc>
): RouteDoc => {
  const page = pageDoc(name, summary, demands, ...reasons)
  const file = {
    description: 'The file.',
    content: [{ media, schema: z.string().meta({ format: 'binary' }) }],
  }
  return { ...page, answers: { ...page.answers, 200: file } }
}

/** A path that leads to another one. */
export const hopDoc = (name: string, to: string): RouteDoc => ({
  ...openDoc(name, `Leads to ${to}.`, 'text/html'),
  answers: { 303: { description: 'It is there.', headers: { Location: to } } },
})
