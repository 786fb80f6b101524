import { z } from 'zod'
import type { OrganisationAuthority } from '../../certs/authority/rotation.ts'
import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { AdministrationFacts } from '../../plugins/operators/operator.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { AnswerDoc, RouteDoc } from './doc.ts'
import { healthReply, metricsReply, pemReply, type readinessProbe, readinessReply } from './health.ts'
import { type BareRoute, gatedRoute, openRoute, withRouteDoc } from './route.ts'

export interface PublicHandlers {
  readonly readiness: ReturnType<typeof readinessProbe>
  readonly authority: OrganisationAuthority
}

export function publicRoutes(
  anyone: Pipeline<Arrival>,
  { readiness, authority }: PublicHandlers,
): readonly BareRoute[] {
  const live = (path: string) => withRouteDoc(openRoute('GET', path, anyone, healthReply), HEALTH)
  const fit = (path: string) => withRouteDoc(openRoute('GET', path, anyone, readinessReply(readiness)), READY)
  const ca = pemReply(() => authority.rootsPem)
  const chain = pemReply(() => authority.trustPem)
  return [
    ...['/health', '/healthz', '/health/liveness', '/health/liveliness'].map(live),
    ...['/ready', '/readyz', '/health/readiness'].map(fit),
    withRouteDoc(openRoute('GET', '/pki/ca.crt', anyone, ca), CA),
    withRouteDoc(openRoute('GET', '/pki/ca-chain.pem', anyone, chain), CA_CHAIN),
  ]
}

export const metricsRoutes = (
  pipeline: Pipeline<AdministrationFacts>,
  registry: GatewayMetrics['registry'],
  { operators: recorder }: RouteRecorders,
): readonly BareRoute[] => [
  withRouteDoc(gatedRoute('GET', '/metrics', { pipeline, recorder }, metricsReply(registry)), METRICS),
]

const open = (name: string, summary: string, answers: RouteDoc['answers']): RouteDoc => ({
  name,
  summary,
  caller: 'anyone',
  answers,
  reasons: [],
})

const check = z.enum(['ok', 'failed'])
const readiness = z
  .strictObject({
    status: z.enum(['ready', 'not_ready', 'draining']),
    checks: z.strictObject({
      database: check,
      audit: check,
      ca: check,
      plugins: check,
      providers: z.enum(['ok', 'degraded', 'down']).exactOptional(),
      disk: z.literal('low').exactOptional(),
      descriptors: z.literal('low').exactOptional(),
      anchors: z.literal('late').exactOptional(),
      sealing: z.literal('stopped').exactOptional(),
      clock: z.literal('off').exactOptional(),
      log: z.literal('losing').exactOptional(),
    }),
  })
  .meta({ id: 'Readiness' })
const checks = (result: z.output<typeof check>) => ({
  database: 'ok',
  audit: result,
  ca: 'ok',
  plugins: 'ok',
  providers: 'ok',
})

const pem: AnswerDoc = {
  description: 'PEM.',
  content: [{ media: 'application/x-pem-file', schema: z.string() }],
  headers: { ETag: 'For If-None-Match: clients poll it.' },
}

const certificate = (name: string, summary: string): RouteDoc => ({
  ...open(name, summary, { 200: pem, 304: { description: 'As it was.' } }),
  headers: { 'If-None-Match': 'The ETag of the one that the client has.' },
})

const HEALTH = open('getHealth', 'Says that the process lives.', {
  200: {
    description: 'It does.',
    content: [{ schema: z.strictObject({ status: z.literal('ok') }), example: { status: 'ok' } }],
  },
})

const READY = open('getReadiness', 'Says whether calls can be served.', {
  200: {
    description: 'They can.',
    content: [{ schema: readiness, example: { status: 'ready', checks: checks('ok') } }],
  },
  503: {
    description: 'They cannot.',
    content: [{ schema: readiness, example: { status: 'not_ready', checks: checks('failed') } }],
  },
})

const CA = certificate(
  'getCa',
  'The root certificates that clients trust this service by: two while its CA is being replaced.',
)

const CA_CHAIN = certificate(
  'getCaChain',
  'The intermediate that issues, any other one, and the root certificates.',
)

const METRICS: RouteDoc = {
  ...open('getMetrics', 'Counters and gauges as Prometheus reads them.', {
    200: { description: 'The metrics.', content: [{ media: 'text/plain', schema: z.string() }] },
  }),
  caller: 'monitor',
  reasons: ['admin_secret_invalid', 'admin_throttled', 'overloaded'],
}
