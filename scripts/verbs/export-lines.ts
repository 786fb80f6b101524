/** What the lines are for. */
export interface Wanted {
  /** Where the sidecar listens. */
  readonly port: number
  /** Null: only the sidecar's lines are shown. */
  readonly identity: { readonly directory: string; readonly url: string } | null
  /** True: the lines in force are those that use the certificate. */
  readonly direct: boolean
}

/** Lines for a POSIX shell that point the common clients at the gateway; what is not in force is a comment. */
export function exportLines({ port, identity, direct }: Wanted): string {
  const base = `http://127.0.0.1:${port}`
  const files = identity && filesIn(identity.directory)
  const sections = [
    section(
      !direct,
      `through the sidecar: sallyport connect --identity ${files?.directory ?? 'DIR'} --port ${port}`,
      [
        ...variables(
          { OPENAI_BASE_URL: `${base}/v1`, OPENAI_API_KEY: 'unused' },
          'OpenAI SDKs, also in Python',
        ),
        ...variables(
          { ANTHROPIC_BASE_URL: base, ANTHROPIC_API_KEY: 'unused' },
          'Anthropic SDKs, also in Python, and Claude Code',
        ),
      ],
    ),
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
  return sections.join('\n')
}

interface Files {
  readonly directory: string
  readonly ca: string
  readonly cert: string
  readonly key: string
}

const filesIn = (directory: string): Files => ({
  directory: quoted(directory),
  ca: `${directory}/org-ca.crt`,
  cert: `${directory}/agent.crt`,
  key: `${directory}/agent.key`,
})

function section(inForce: boolean, title: string, lines: readonly string[]): string {
  return [`# ${title}`, ...lines.map((line) => (inForce ? line : `#   ${line}`)), ''].join('\n')
}

/** Export lines, the first with a comment behind it. */
function variables(values: Readonly<Record<string, string>>, comment?: string): string[] {
  const lines = Object.entries(values).map(([name, value]) => `export ${name}=${quoted(value)}`)
  return lines.map((line, i) => (i === 0 && comment !== undefined ? `${line}  # ${comment}` : line))
}

// Claude Code adds /v1 itself. It sends the certificate, and no proof: for that there is the sidecar.
const claudeCode = (url: string, { ca, cert, key }: Files): string[] =>
  variables({
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_API_KEY: 'unused',
    NODE_EXTRA_CA_CERTS: ca,
    CLAUDE_CODE_CLIENT_CERT: cert,
    CLAUDE_CODE_CLIENT_KEY: key,
  })

const mcp = (url: string): string[] => [
  `claude mcp add --transport http sallyport ${quoted(`${url}/v1/mcp`)}`,
]

const node = (url: string, { directory }: Files): string[] => [
  `export SALLYPORT_IDENTITY=${directory}`,
  ...variables({
    OPENAI_BASE_URL: `${url}/v1`,
    OPENAI_API_KEY: 'unused',
  }),
  '# node --import sallyport/register app.mjs  (where sallyport is installed)',
]

const codex = (base: string): string[] => [
  'model_provider = "sallyport"',
  '[model_providers.sallyport]',
  'name = "Sallyport"',
  `base_url = "${base}/v1"`,
  'env_key = "OPENAI_API_KEY"',
  'wire_api = "responses"',
]

const python = (url: string, { ca, cert, key }: Files): string[] => [
  'import httpx, openai',
  `client = httpx.Client(verify=${JSON.stringify(ca)}, cert=(${JSON.stringify(cert)}, ${JSON.stringify(key)}))`,
  `openai.OpenAI(base_url="${url}/v1", api_key="unused", http_client=client)`,
]

/** A word of a POSIX shell that stands for exactly this text. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
