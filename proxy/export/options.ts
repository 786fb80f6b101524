import { isAbsolute } from 'node:path'
import { z } from 'zod'
import { HTTP_HEADER_NAME, HTTP_HEADER_VALUE } from './header-form.ts'

/** The sinks that a file may name. */
const MAX_SINKS = 16
const MAX_HEADERS = 32
const MAX_ACTIONS = 64

const common = {
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,31}$/, 'must be 1 to 32 of a-z, 0-9 and -')
    .describe('The name by which its place in the ledger is kept. Another name begins again.'),
  format: z
    .enum(['ndjson', 'ocsf'])
    .default('ndjson')
    .describe('ndjson: the line of an export. ocsf: an event of the Open Cybersecurity Schema Framework.'),
  from: z
    .enum(['now', 'start'])
    .default('now')
    .describe('The first row of a sink that is new: the next one, or the first of all. Default now.'),
  actions: z
    .array(z.string().regex(/^[A-Za-z_.*]{1,64}$/, 'must be an action, with * for any characters'))
    .min(1)
    .max(MAX_ACTIONS)
    .exactOptional()
    .describe('The actions whose rows are sent, with * for any characters. Default: all.'),
}

const file = z.strictObject({
  ...common,
  kind: z.literal('file'),
  path: z
    .string()
    .max(4_096)
    .refine(isAbsolute, 'must be an absolute path')
    .describe('The file that lines are appended to. Its folder is there.'),
})

const isHttps = (text: string): boolean => {
  const url = URL.parse(text)
  return url?.protocol === 'https:' && !url.username && !url.password && !/[#\s]/.test(text)
}

const client = z
  .strictObject({
    cert: z
      .string()
      .min(1)
      .max(65_536)
      .describe('The certificate with its chain. PEM, by a reference to a file.'),
    key: z.string().min(1).max(65_536).describe('Its key. PEM, by a reference to a file.'),
  })
  .exactOptional()
  .describe('The certificate that is shown to the server.')

const https = z.strictObject({
  ...common,
  kind: z.literal('https'),
  url: z
    .string()
    .max(2_048)
    .refine(isHttps, 'must be an https URL without credentials or fragment')
    .describe('Where lines are posted to. 2xx takes them.'),
  headers: z
    .record(
      z.string().regex(HTTP_HEADER_NAME, 'is no name of a header that may be set'),
      z.string().max(8_192).regex(HTTP_HEADER_VALUE, 'must be printable ASCII'),
    )
    .refine((given) => Object.keys(given).length <= MAX_HEADERS, `has at most ${MAX_HEADERS} headers`)
    .default({})
    .describe('Further headers. A secret is a reference to a file.'),
  client,
})

const syslog = z.strictObject({
  ...common,
  kind: z.literal('syslog'),
  host: z
    .string()
    .regex(/^[A-Za-z0-9.:-]{1,253}$/, 'must be a host name or an address')
    .describe('A server of syslog over TLS (RFC 5425), which its certificate names.'),
  port: z.int().min(1).max(65_535).default(6_514).describe('Default 6514.'),
  client,
})

/** The options of the `export` file (docs/exports.md). */
export const exportOptions = z.strictObject({
  names: z
    .boolean()
    .default(false)
    .describe('true: with the readable names of users, while they exist. Default false: pseudonyms alone.'),
  sinks: z
    .array(z.discriminatedUnion('kind', [file, https, syslog]))
    .max(MAX_SINKS)
    .refine(
      (sinks) => new Set(sinks.map(({ name }) => name)).size === sinks.length,
      'must have one sink of each name',
    )
    .describe('The sinks that rows are sent to.'),
})

export type ExportOptions = z.infer<typeof exportOptions>
export type SinkOptions = ExportOptions['sinks'][number]
export type SinkOptionsOf<Kind extends SinkOptions['kind']> = Extract<SinkOptions, { kind: Kind }>

/** The place that rows go to, without what may be a secret. */
export function targetOf(sink: SinkOptions): string {
  if (sink.kind === 'file') return sink.path
  if (sink.kind === 'syslog') return `${sink.host}:${sink.port}`
  const { origin, pathname } = new URL(sink.url)
  return `${origin}${pathname}`
}

const PREFIX = 'export:'

/** The name by which a sink's cursors are stored: other readers of the ledger have others. */
export const followerName = ({ name }: Pick<SinkOptions, 'name'>): string => `${PREFIX}${name}`

/** The sink that a name of {@link followerName} is of; null: it is of another reader. */
export const sinkOfFollower = (name: string): string | null =>
  name.startsWith(PREFIX) ? name.slice(PREFIX.length) : null
