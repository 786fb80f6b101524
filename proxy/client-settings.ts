// Settings of common clients, shown by the dashboard and printed by `sallyport env`. The package for clients has
// this file too, so it imports nothing.

/**
 * Shell lines that keep calls to this machine off the environment's proxy. Some clients read `no_proxy`, some
 * `NO_PROXY`. The lines may run more than once.
 */
export const STAY_LOCAL: readonly string[] = [
  `case "\${no_proxy-}|\${NO_PROXY-}" in`,
  `  '*|'* | *'|*') no_proxy='*' ;;`,
  `  localhost,127.0.0.1,::1*'|'localhost,127.0.0.1,::1*) ;;`,
  `  *) no_proxy="localhost,127.0.0.1,::1\${no_proxy:+,$no_proxy}\${NO_PROXY:+,$NO_PROXY}" ;;`,
  'esac',
  'export no_proxy NO_PROXY="$no_proxy"',
]

export const openaiVariables = (url: string): Readonly<Record<string, string>> => ({
  OPENAI_BASE_URL: `${url}/v1`,
  OPENAI_API_BASE: `${url}/v1`,
  OPENAI_API_KEY: 'unused',
})

export const anthropicVariables = (url: string): Readonly<Record<string, string>> => ({
  ANTHROPIC_BASE_URL: url,
  ANTHROPIC_API_KEY: 'unused',
})

export const OPENAI_ELSEWHERE: readonly string[] = ['OPENAI_API_TYPE', 'AZURE_OPENAI_ENDPOINT']

export const ANTHROPIC_ELSEWHERE: readonly string[] = [
  'ANTHROPIC_AUTH_TOKEN',
  'CLAUDE_CODE_OAUTH_TOKEN',
  'CLAUDE_CODE_USE_BEDROCK',
  'CLAUDE_CODE_USE_VERTEX',
  'CLAUDE_CODE_USE_FOUNDRY',
]
