import { z } from 'zod'
import type { AnswerDoc, RouteDoc } from '../http/doc.ts'

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
      disk: z.literal('low').exactOptional(),
      descriptors: z.literal('low').exactOptional(),
      anchors: z.literal('late').exactOptional(),
      log: z.literal('losing').exactOptional(),
    }),
  })
  .meta({ id: 'Readiness' })
const checks = (result: z.output<typeof check>) => ({
  database: 'ok',
  audit: result,
  ca: 'ok',
  plugins: 'ok',
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

export const HEALTH = open('getHealth', 'Says that the process lives.', {
  200: {
    description: 'It does.',
    content: [{ schema: z.strictObject({ status: z.literal('ok') }), example: { status: 'ok' } }],
  },
})

export const READY = open('getReadiness', 'Says whether calls can be served.', {
  200: {
    description: 'They can.',
    content: [{ schema: readiness, example: { status: 'ready', checks: checks('ok') } }],
  },
  503: {
    description: 'They cannot.',
    content: [{ schema: readiness, example: { status: 'not_ready', checks: checks('failed') } }],
  },
})

export const CA = certificate('getCa', 'The root certificate that clients trust this service by.')

export const CA_CHAIN = certificate('getCaChain', 'The intermediate and the root certificate.')

/** GET /openapi.json */
export const OPENAPI: RouteDoc = {
  ...open('getOpenapi', 'This document.', {
    200: {
      description: 'OpenAPI 3.1.',
      content: [{ schema: z.looseObject({ openapi: z.literal('3.1.1') }) }],
    },
  }),
  reasons: ['overloaded'],
}

/** GET /metrics */
export const METRICS: RouteDoc = {
  ...open('getMetrics', 'Counters and gauges as Prometheus reads them.', {
    200: { description: 'The metrics.', content: [{ media: 'text/plain', schema: z.string() }] },
  }),
  caller: 'monitor',
  reasons: ['admin_secret_invalid', 'admin_throttled', 'overloaded'],
}
