import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import { type Enrolled, type EnrollOptions, enrollByoca, enrollSpiffe, mint } from '../client/enroll.ts'

type Values = Readonly<Record<string, string | undefined>>

const OPTIONS = {
  gateway: { type: 'string' },
  ca: { type: 'string' },
  caps: { type: 'string' },
  'display-name': { type: 'string' },
  out: { type: 'string' },
  'secret-file': { type: 'string' },
  cert: { type: 'string' },
  key: { type: 'string' },
  svid: { type: 'string' },
  bundle: { type: 'string' },
} as const

const KINDS: Readonly<Record<string, (options: EnrollOptions, values: Values) => Promise<Enrolled>>> = {
  mint,
  byoca: async (options, values) =>
    enrollByoca({
      ...options,
      certPem: await fileOf('cert', values),
      privateKeyPem: await fileOf('key', values),
    }),
  spiffe: async (options, values) =>
    enrollSpiffe({
      ...options,
      svidPem: await fileOf('svid', values),
      svidKeyPem: await fileOf('key', values),
      ...(values.bundle !== undefined && { trustBundlePem: await fileOf('bundle', values) }),
    }),
}

/** `sallyport enroll`: enrolls over the network and says what came of it. Throws one sentence. */
export async function enrollVerb(args: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS })
  const [kind = '', name, ...rest] = positionals
  const enroll = Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined
  if (!enroll || !name || rest.length > 0)
    throw new Error('say a way and a name: enroll byoca|spiffe|mint NAME')
  const enrolled = await enroll(await optionsOf(name, values), values)
  process.stdout.write(summary(enrolled))
}

async function optionsOf(name: string, values: Values): Promise<EnrollOptions> {
  return {
    gatewayUrl: given('gateway', values),
    ca: await fileOf('ca', values),
    adminSecret: await secretOf(values),
    name,
    capabilities: (values.caps ?? '').split(/[\s,]+/).filter((token) => token !== ''),
    directory: values.out ?? `agents/${name}`,
    ...(values['display-name'] !== undefined && { displayName: values['display-name'] }),
  }
}

function given(name: string, values: Values): string {
  const value = values[name]
  if (value === undefined) throw new Error(`--${name} is needed: see --help`)
  return value
}

const fileOf = async (name: string, values: Values): Promise<string> => readFile(given(name, values), 'utf8')

// Never an argument: every user of the machine can read those.
async function secretOf(values: Values): Promise<string> {
  const file = values['secret-file']
  const { SALLYPORT_ADMIN_SECRET: variable } = process.env
  const said = file === undefined ? (variable ?? (await text(process.stdin))) : await readFile(file, 'utf8')
  const secret = said.split('\n')[0] ?? ''
  if (secret === '') throw new Error('the operator secret is empty: see --help for where it is read from')
  return secret
}

function summary({ agentId, directory, capabilities, apiKey }: Enrolled): string {
  const held = capabilities.length > 0 ? capabilities.join(', ') : 'none'
  const key = apiKey === null ? '' : `API key, shown this once: ${apiKey}\n`
  return `enrolled ${agentId} (capabilities: ${held}) in ${directory}
${key}try it:
  sallyport connect --identity ${directory}
`
}
