import { z } from 'zod'
import { isGuardedUrl } from '../../boot/networks.ts'

export const SIGNALS = ['traces', 'metrics', 'logs'] as const
export type TelemetrySignal = (typeof SIGNALS)[number]

function isEndpoint(text: string): boolean {
  const url = URL.parse(text)
  return url !== null && isGuardedUrl(url) && !url.username && !url.password && !/[?#\s]/.test(text)
}

/** The headers that a request to a collector has by itself. */
const OWN_HEADERS = /^(?:connection|content-.*|expect|host|keep-alive|te|trailer|transfer-encoding|upgrade)$/i

const headers = z
  .record(
    z
      .string()
      .regex(/^[\w!#$%&'*+.^`|~-]{1,128}$/, 'must be the name of a header')
      .refine((name) => !OWN_HEADERS.test(name), 'is a header that the gateway sets itself'),
    z
      .string()
      .max(8_192)
      .regex(/^[\t\x20-\x7e]*$/, 'must be printable ASCII'),
  )
  .refine((all) => Object.keys(all).length <= 16, 'must be at most 16')

const resource = z
  .record(
    z
      .string()
      .regex(/^[a-z][\w.]{0,127}$/, 'must be the name of an attribute, such as deployment.environment.name'),
    z.string().max(256),
  )
  .refine((all) => Object.keys(all).length <= 32, 'must be at most 32')

/** The options of the `telemetry` file (docs/telemetry.md). */
export const telemetryOptions = z.strictObject({
  endpoint: z
    .string()
    .max(2_048)
    .refine(
      isEndpoint,
      'must be an https URL, or an http URL of this machine, without credentials, query or fragment',
    )
    .describe('The collector, by OTLP/HTTP: /v1/traces, /v1/metrics and /v1/logs are joined to it.'),
  headers: headers
    .default({})
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what operators write
    .describe('Headers of every request to it. Secrets by reference: ${env:NAME} or ${file:/path}.'),
  signals: z
    .array(z.enum(SIGNALS))
    .min(1)
    .refine((all) => new Set(all).size === all.length, 'names one twice')
    .default(['traces', 'metrics'])
    .describe('What is exported: traces, metrics, logs. Default traces and metrics.'),
  sample: z
    .union([z.literal(['parent', 'all']), z.number()])
    .refine(
      (given) => typeof given === 'string' || (given >= 0.01 && given <= 1),
      'must be parent, all, or a number from 0.01 to 1',
    )
    .default('parent')
    .describe(
      "The calls whose spans are exported: as the caller's traceparent says, and all without one (parent); all; or this part of all traces, by their id, whatever a caller says. Default parent.",
    ),
  resource: resource
    .default({})
    .describe('Further attributes of the resource, in addition to service.name and service.version.'),
})

export type TelemetryOptions = z.infer<typeof telemetryOptions>
