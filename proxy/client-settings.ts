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

/** Variables of OpenAI's clients; `{gateway}` stands for the gateway's URL. */
export const OPENAI_VARIABLES: Readonly<Record<string, string>> = {
  OPENAI_BASE_URL: '{gateway}/v1',
  OPENAI_API_BASE: '{gateway}/v1',
  OPENAI_API_KEY: 'unused',
}

/** The same of Anthropic's. */
export const ANTHROPIC_VARIABLES: Readonly<Record<string, string>> = {
  ANTHROPIC_BASE_URL: '{gateway}',
  ANTHROPIC_API_KEY: 'unused',
}

export const OPENAI_ELSEWHERE: readonly string[] = ['OPENAI_API_TYPE', 'AZURE_OPENAI_ENDPOINT']

export const ANTHROPIC_ELSEWHERE: readonly string[] = [
  'ANTHROPIC_AUTH_TOKEN',
  'CLAUDE_CODE_OAUTH_TOKEN',
  'CLAUDE_CODE_USE_BEDROCK',
  'CLAUDE_CODE_USE_VERTEX',
  'CLAUDE_CODE_USE_FOUNDRY',
]
