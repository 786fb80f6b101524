import { join, resolve } from 'node:path'
import {
  ANTHROPIC_ELSEWHERE,
  ANTHROPIC_VARIABLES,
  OPENAI_ELSEWHERE,
  OPENAI_VARIABLES,
  STAY_LOCAL,
} from '../../proxy/client-settings.ts'
import { claudeCodeSection, codexSection } from '../client/agent-lines.ts'
import { gatewayIn } from '../client/identity/identity.ts'
import { type ReachedModel, reachedModel } from '../client/model-reach.ts'
import { commandOf, IS_PACKAGED, parsePort, SIDECAR_OPTIONS, verbOf } from '../command.ts'
import { printVerbatim } from '../print.ts'
import { assertOneLine, shellWord } from '../shell-word.ts'

export const verb = verbOf({
  name: 'sallyport env',
  make: 'make env IDENTITY=DIR [MODEL=NAME] [PORT=8787]',
  about: `Prints the settings for common clients, to be read, or sourced by a shell (. <(${commandOf('env', 'env')})): OpenAI and Anthropic SDKs,
Claude Code, Codex, Python. The active lines go through the sidecar (\`${commandOf('connect', 'connect')}\`); the others are comments.`,
  options: {
    identity: {
      type: 'string',
      value: 'DIR',
      description: "also show how to use the agent's certificate without the sidecar",
    },
    model: {
      type: 'string',
      value: 'NAME',
      description: 'ask the gateway, and show how Claude Code and Codex reach this model, and what they lose',
    },
    ...SIDECAR_OPTIONS,
    direct: {
      type: 'boolean',
      default: false,
      description: 'the active lines use the certificate and no sidecar (needs --identity)',
    },
  },
  notes: `With --model it asks as the identity, else through the sidecar, which must run then. docs/clients.md says what each client
loses on models of another API.`,
  run: async ({ identity: given, port: text, gateway, direct, model }) => {
    if (direct && given === undefined) throw new Error('--direct needs the certificate: --identity DIR')
    const port = parsePort(text)
    const directory = given === undefined ? null : resolve(given)
    if (model !== undefined) assertOneLine('the name of the model', model)
    const reached = model === undefined ? null : await reachedModel(model, { directory, gateway, port })
    const identity = directory === null ? null : { directory, ...gatewayIn(directory, gateway) }
    if (identity) {
      assertOneLine('the path of the identity', identity.directory)
      assertOneLine('the URL of the gateway', identity.url)
    }
    printVerbatim(shellExports({ port, identity, direct, reached }))
  },
})

export interface ShellExportOptions {
  /** The port of the sidecar. */
  readonly port: number
  /** Null: only the sidecar's lines are shown. */
  readonly identity: { readonly directory: string; readonly url: string } | null
  /** True: the lines in force are those that use the certificate. */
  readonly direct: boolean
  /** The model that Claude Code and Codex are to call. Null: the lines are of all clients and name none. */
  readonly reached?: ReachedModel | null
}

interface ShellSection {
  /** False: its lines are comments. */
  readonly inForce: boolean
  readonly title: string
  readonly lines: readonly string[]
}

/**
 * Shell lines that point the common clients at the gateway; lines not in force are comments. With a model: the
 * lines in force, and those of the two clients that are to call it.
 */
export function shellExports({ port, identity, direct, reached = null }: ShellExportOptions): string {
  const base = `http://127.0.0.1:${port}`
  const files = identity && filesIn(identity.directory)
  const sections = [
    section(true, 'calls to this machine go by no proxy, and no other setting takes them elsewhere', [
      ...STAY_LOCAL,
      `unset ${[...OPENAI_ELSEWHERE, ...ANTHROPIC_ELSEWHERE].join(' ')}`,
    ]),
    section(!direct, `through the sidecar: ${connect(files?.directory ?? 'DIR', port)}`, [
      ...variables(at(OPENAI_VARIABLES, base), 'OpenAI SDKs, also in Python'),
      ...variables(at(ANTHROPIC_VARIABLES, base), 'Anthropic SDKs, also in Python, and Claude Code'),
    ]),
    section(false, 'Codex, in ~/.codex/config.toml, through the sidecar', codex(base)),
    section(false, 'MCP tools in Claude Code, through the sidecar', mcp(base)),
  ]
  if (identity && files) {
    sections.push(
      section(
        direct,
        'Claude Code with the certificate, without the sidecar',
        claudeCode(identity.url, files),
      ),
      section(false, 'MCP tools in Claude Code with the certificate, as exported above', mcp(identity.url)),
      section(
        direct,
        'any Node program, signed with DPoP, without the sidecar and without a change',
        node(identity.url, files),
      ),
      section(false, 'Python with the certificate, without the sidecar', python(identity.url, files)),
    )
  }
  const shown = reached
    ? [
        ...sections.filter(({ inForce }) => inForce),
        ...[claudeCodeSection(reached), codexSection(reached, codex(base))].map(({ title, lines }) =>
          section(false, title, lines),
        ),
      ]
    : sections
  return shown.map(sectionText).join('\n')
}

interface IdentityPaths {
  readonly directory: string
  readonly ca: string
  readonly cert: string
  readonly key: string
  readonly bundle: string
}

const filesIn = (directory: string): IdentityPaths => ({
  directory: shellWord(directory),
  ca: `${directory}/org-ca.crt`,
  cert: `${directory}/agent.crt`,
  key: `${directory}/agent.key`,
  bundle: `${directory}/extra-ca.pem`,
})

const section = (inForce: boolean, title: string, lines: readonly string[]): ShellSection => ({
  inForce,
  title,
  lines,
})

const sectionText = ({ inForce, title, lines }: ShellSection): string =>
  [`# ${title}`, ...lines.map((line) => (inForce ? line : `#   ${line}`)), ''].join('\n')

/** Variables of a client that calls this gateway. */
const at = (values: Readonly<Record<string, string>>, url: string): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.replace('{gateway}', url)]))

function variables(values: Readonly<Record<string, string>>, comment?: string): string[] {
  const lines = Object.entries(values).map(([name, value]) => `export ${name}=${shellWord(value)}`)
  return lines.map((line, i) => (i === 0 && comment !== undefined ? `${line}  # ${comment}` : line))
}

// Claude Code adds /v1 itself. It sends the certificate, and no proof: the sidecar does that.
const claudeCode = (url: string, { ca, cert, key, bundle }: IdentityPaths): string[] => [
  ...variables(at(ANTHROPIC_VARIABLES, url)),
  ...extraCa(ca, bundle),
  ...variables({ CLAUDE_CODE_CLIENT_CERT: cert, CLAUDE_CODE_CLIENT_KEY: key }),
]

/** Returns lines by which Node trusts the gateway's CA in addition to those that the shell names already. */
function extraCa(ca: string, bundle: string): string[] {
  const [ours, both] = [shellWord(ca), shellWord(bundle)]
  return [
    `case "\${NODE_EXTRA_CA_CERTS-}" in`,
    `  '') export NODE_EXTRA_CA_CERTS=${ours} ;;`,
    `  ${ours} | ${both}) ;;`,
    `  *) { cat -- "$NODE_EXTRA_CA_CERTS"; echo; cat -- ${ours}; } > ${both} && export NODE_EXTRA_CA_CERTS=${both} ;;`,
    'esac',
  ]
}

const mcp = (url: string): string[] => [
  `claude mcp add --transport http sallyport ${shellWord(`${url}/v1/mcp`)}`,
]

const node = (url: string, { directory }: IdentityPaths): string[] => [
  `export SALLYPORT_IDENTITY=${directory}`,
  ...variables(at(OPENAI_VARIABLES, url)),
  `# node --import ${REGISTER} app.mjs  (Node 24.21 or newer)`,
]

/** Preloaded by a Node program: the checkout's own file, or the installed package's. */
const REGISTER = IS_PACKAGED ? 'sallyport/register' : shellWord(join(import.meta.dirname, '../register.ts'))

function connect(directory: string, port: number): string {
  // A dollar sign is make's own.
  const identity = directory.replaceAll('$', '$$$$')
  return commandOf(
    `connect IDENTITY=${identity} PORT=${port}`,
    `connect --identity ${directory} --port ${port}`,
  )
}

const codex = (base: string): string[] => [
  'model_provider = "sallyport"',
  '[model_providers.sallyport]',
  'name = "Sallyport"',
  `base_url = "${base}/v1"`,
  'env_key = "OPENAI_API_KEY"',
  'wire_api = "responses"',
]

// An SSLContext, since httpx 0.28 and httpx2 drop `cert=` if there is a `verify="…"`; the SDKs' own client,
// since they were written for its kind. Straight to the gateway, as all our clients go.
const python = (url: string, { ca, cert, key }: IdentityPaths): string[] => [
  'import ssl',
  `context = ssl.create_default_context(cafile=${JSON.stringify(ca)})`,
  `context.load_cert_chain(${JSON.stringify(cert)}, ${JSON.stringify(key)})`,
  'import openai  # httpx or httpx2 by itself: httpx.Client(verify=context)',
  `client = openai.OpenAI(base_url="${url}/v1", api_key="unused", http_client=openai.DefaultHttpxClient(verify=context, trust_env=False))`,
  'import anthropic',
  `claude = anthropic.Anthropic(base_url="${url}", api_key="unused", http_client=anthropic.DefaultHttpxClient(verify=context, trust_env=False))`,
]
