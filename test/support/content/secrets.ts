import { createHash, generateKeyPairSync } from 'node:crypto'

/** A text that one rule finds, made while the tests run: none stands in the sources. */
export interface SampleSecret {
  readonly rule: string
  readonly text: string
}

const ALPHABETS = {
  word: 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789',
  letters: 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz',
  upper: 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567',
  hex: '0123456789abcdef',
  digits: '0123456789',
} as const

/** Makes characters that look random and are the same in each run. */
function characters(length: number, seed: string, alphabet: keyof typeof ALPHABETS = 'word'): string {
  const letters = ALPHABETS[alphabet]
  const bytes = createHash('shake256', { outputLength: length }).update(seed).digest()
  return [...bytes].map((byte) => letters[byte % letters.length]).join('')
}

const c = characters

const PATTERNS: readonly (readonly [rule: string, made: (seed: string) => string])[] = [
  ['GITHUB_TOKEN', (s) => `ghp_${c(36, s)}`],
  ['GITHUB_TOKEN', (s) => `gho_${c(36, s)}`],
  ['GITHUB_TOKEN', (s) => `ghs_${c(36, s)}`],
  ['GITHUB_TOKEN', (s) => `github_pat_${c(82, s)}`],
  ['AWSAccessKeyID', (s) => `AKIA${c(16, s, 'upper')}`],
  ['AWSAccessKeyID', (s) => `ASIA${c(16, s, 'upper')}`],
  ['AWSSecretAccessKey', (s) => `aws_secret_access_key = ${c(40, s)}`],
  ['AWSSecretAccessKey', (s) => `SECRET_ACCESS_KEY: ${c(40, s)}`],
  ['SLACK_TOKEN', (s) => `xoxb-${c(12, s, 'digits')}-${c(12, `${s}b`, 'digits')}-${c(24, `${s}c`)}`],
  ['SLACK_TOKEN', (s) => `xapp-1-${c(11, s)}-${c(13, `${s}b`, 'digits')}-${c(40, `${s}c`)}`],
  [
    'IncomingWebhook',
    (s) => `https://hooks.slack.com/services/T${c(9, s)}/B${c(9, `${s}b`)}/${c(24, `${s}c`)}`,
  ],
  ['ANTHROPIC_API_KEY', (s) => `sk-ant-api03-${c(93, s)}AA`],
  ['OPENAI_TOKEN', (s) => `sk-proj-${c(74, s)}T3BlbkFJ${c(74, `${s}b`)}`],
  ['OPENAI_TOKEN', (s) => `sk-${c(20, s)}T3BlbkFJ${c(20, `${s}b`)}`],
  ['NPM_ACCESS_TOKEN', (s) => `npm_${c(36, s)}`],
  ['GITLAB_PERSONAL_ACCESS_TOKEN', (s) => `glpat-${c(20, s)}`],
  ['GOOGLE_API_KEY', (s) => `AIza${c(35, s)}`],
  ['STRIPE_SECRET_KEY_LIVE', (s) => `sk_live_${c(24, s)}`],
  ['STRIPE_RESTRICTED_KEY_LIVE', (s) => `rk_live_${c(24, s)}`],
  ['STRIPE_WEBHOOK_SECRET', (s) => `whsec_${c(32, s)}`],
  ['JSON_WEB_TOKEN', (s) => jwt(s)],
  ['HUGGINGFACE_USER_ACCESS_TOKEN', (s) => `hf_${c(34, s, 'letters')}`],
  ['GROQ_API_KEY', (s) => `gsk_${c(52, s)}`],
  ['SHOPIFY_KEY', (s) => `shpat_${c(32, s, 'hex')}`],
  ['DOCKER_PERSONAL_ACCESS_TOKEN', (s) => `dckr_pat_${c(27, s)}`],
  ['DATABRICKS_PERSONAL_ACCESS_TOKEN', (s) => `dapi${c(32, s, 'hex')}`],
  ['HASHICORP_VAULT_SERVICE_TOKEN', (s) => `hvs.${c(92, s)}`],
  ['LINEAR_API_TOKEN', (s) => `lin_api_${c(40, s)}`],
  ['PrivateKey', () => pem()],
  ['TAILSCALE_KEY', (s) => `tskey-auth-${c(12, s)}-${c(32, `${s}b`)}`],
]

function jwt(seed: string): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub: c(12, seed), iat: 1_700_000_000 })}.${c(43, seed)}`
}

const pem = (): string =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' })
    .privateKey.export({ type: 'pkcs8', format: 'pem' })
    .toString()

/** Sixty secrets, of every kind that the recommended rules find. */
export const SAMPLE_SECRETS: readonly SampleSecret[] = [0, 1].flatMap((round) =>
  PATTERNS.map(([rule, made], place) => ({ rule, text: made(`${place}-${round}`) })),
)

/** One of them, in full. Throws if there is none of the rule. */
export function sampleSecret(rule: string): string {
  const found = SAMPLE_SECRETS.find((one) => one.rule === rule)
  if (!found) throw new Error(`there is no secret of ${rule}`)
  return found.text
}
