import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { type Enrolled, type EnrollOptions, enrollByoca, enrollSpiffe, mint } from '../client/enroll.ts'
import { commandOf, verbOf } from '../command.ts'
import { print } from '../print.ts'
import { shellWord } from '../shell-word.ts'

type EnrollValues = Readonly<Record<string, string | undefined>>

const KINDS: Readonly<Record<string, (options: EnrollOptions, values: EnrollValues) => Promise<Enrolled>>> = {
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

const USAGE = 'give a way and a name: enroll byoca|spiffe|mint NAME'
const COMMON = '--gateway URL --ca FILE'

export const verb = verbOf({
  name: 'sallyport enroll',
  takes: 'byoca|spiffe|mint NAME',
  misuse: USAGE,
  usage: [
    `mint   NAME ${COMMON} [options]`,
    `byoca  NAME ${COMMON} --cert FILE --key FILE [options]`,
    `spiffe NAME ${COMMON} --svid FILE --key FILE [--bundle FILE] [options]`,
  ],
  about: `Enrolls an agent over the admin API and writes its identity directory, with a new DPoP key registered. \`mint\` has the
gateway make the certificate; \`byoca\` takes one of an organisation's own CA, \`spiffe\` an SVID.`,
  options: {
    gateway: { type: 'string', value: 'URL', description: 'e.g. https://gateway.example:9443' },
    ca: {
      type: 'string',
      value: 'FILE',
      description: 'the CA certificate that the gateway is trusted by (PEM): its org-ca.crt',
    },
    cert: {
      type: 'string',
      value: 'FILE',
      description: 'byoca: the certificate and its intermediates (PEM)',
    },
    svid: { type: 'string', value: 'FILE', description: 'spiffe: the X.509 SVID (PEM)' },
    key: { type: 'string', value: 'FILE', description: 'byoca, spiffe: the private key (PEM)' },
    bundle: {
      type: 'string',
      value: 'FILE',
      description: 'spiffe: the trust bundle, instead of the gateway’s',
    },
    caps: { type: 'string', value: 'CAP,CAP', description: 'capabilities; none by default' },
    'display-name': { type: 'string', value: 'TEXT', description: 'the display name' },
    out: {
      type: 'string',
      value: 'DIR',
      description: 'where the identity goes (default agents/NAME); must be empty',
    },
    'secret-file': {
      type: 'string',
      value: 'FILE',
      description: 'the operator secret; default: SALLYPORT_ADMIN_SECRET, else a line of standard input',
    },
  },
  run: async (values, [kind, name]) => {
    const enroll = Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined
    if (!enroll) throw new Error(USAGE)
    const enrolled = await enroll(await optionsOf(name, values), values)
    print(...summary(enrolled))
  },
})

async function optionsOf(name: string, values: EnrollValues): Promise<EnrollOptions> {
  return {
    gatewayUrl: requireValue('gateway', values),
    ca: await fileOf('ca', values),
    adminSecret: await secretOf(values),
    name,
    capabilities: (values.caps ?? '').split(/[\s,]+/).filter((token) => token !== ''),
    directory: values.out ?? `agents/${name}`,
    ...(values['display-name'] !== undefined && { displayName: values['display-name'] }),
  }
}

function requireValue(name: string, values: EnrollValues): string {
  const value = values[name]
  if (value === undefined) throw new Error(`--${name} is needed: see --help`)
  return value
}

const fileOf = async (name: string, values: EnrollValues): Promise<string> =>
  readFile(requireValue(name, values), 'utf8')

// Never an argument: every user of the machine can read those.
async function secretOf(values: EnrollValues): Promise<string> {
  const file = values['secret-file']
  const { SALLYPORT_ADMIN_SECRET: variable } = process.env
  const input = file === undefined ? (variable ?? (await text(process.stdin))) : await readFile(file, 'utf8')
  const secret = input.split('\n')[0] ?? ''
  if (secret === '') throw new Error('the operator secret is empty: see --help for where it is read from')
  return secret
}

function summary({ agentId, directory, capabilities, apiKey }: Enrolled): readonly string[] {
  const held = capabilities.length > 0 ? capabilities.join(', ') : 'none'
  const identity = shellWord(directory)
  return [
    `enrolled ${agentId} (capabilities: ${held}) in ${directory}`,
    ...(apiKey === null ? [] : [`API key, shown only this once: ${apiKey}`]),
    'try it:',
    `  ${commandOf(`connect IDENTITY=${identity}`, `connect --identity ${identity}`)}`,
  ]
}
