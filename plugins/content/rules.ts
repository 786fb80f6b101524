/** A rule by which a secret is found. */
export interface SecretRule {
  /** The name of its finding, in the words of the preset; ours are named likewise. */
  readonly name: string
  /** The fixed texts that a secret of it begins with, or the words before it. */
  readonly begins: readonly string[]
  /** The characters that may follow, as a class of a regular expression. */
  readonly more: string
  /** The least and the most characters that are looked at from the beginning on. */
  readonly least: number
  readonly most: number
  /** The way that it must go on, of its first 48 characters. Absent: any. */
  readonly head?: RegExp
  /** The end of it, in addition to any character that may not follow. */
  readonly tail?: RegExp
}

const WORD = '[A-Za-z0-9_-]'
/** Characters. A longer secret is found too, but the beginning of it may be on its way by then. */
const MAX_SECRET = 256
/** Characters. A block of PEM. */
const MAX_PEM = 8_192
/** Characters. Tokens that hold claims. */
const MAX_CLAIMS = 4_096

const rule = (
  name: string,
  begins: readonly string[],
  least: number,
  { more = WORD, most = MAX_SECRET, ...form }: Partial<SecretRule> = {},
): SecretRule => ({ name, begins, more, least, most, ...form })

/** Every spelling of the words before a secret access key of AWS. */
const AWS_WORDS = ['SECRET', 'secret', 'Secret'].flatMap((secret) =>
  ['', '_'].flatMap((one) =>
    ['ACCESS', 'access', 'Access'].flatMap((access) =>
      ['', '_'].flatMap((two) => ['KEY', 'key', 'Key'].map((key) => `${secret}${one}${access}${two}${key}`)),
    ),
  ),
)

const AWS_IDS = ['AKIA', 'AGPA', 'AIDA', 'AROA', 'AIPA', 'ANPA', 'ANVA', 'ASIA', 'A3T']
const URL_PART = '[^\\s]'

/** The rules that are on by default: each has a beginning that ordinary text does not have. */
export const RECOMMENDED_RULES: readonly SecretRule[] = [
  rule('ANTHROPIC_API_KEY', ['sk-ant-api0'], 100),
  rule('AWSAccessKeyID', AWS_IDS, 19, { more: '[A-Z0-9]', most: 32 }),
  rule('AWSSecretAccessKey', AWS_WORDS, 54, { more: '[A-Za-z0-9/+=\\s:>"\'\\\\]', most: 128 }),
  rule('CLOUDFLARE_GLOBAL_API_KEY', ['cfk_'], 52),
  rule('CLOUDFLARE_USER_API_TOKEN', ['cfut_'], 53),
  rule('CLOUDFLARE_ACCOUNT_API_TOKEN', ['cfat_'], 53),
  rule('DATABRICKS_PERSONAL_ACCESS_TOKEN', ['dapi'], 36),
  rule('DOCKER_PERSONAL_ACCESS_TOKEN', ['dckr_pat_'], 36),
  rule('FIGMA_PERSONAL_ACCESS_TOKEN', ['figd_'], 45),
  rule('GITHUB_TOKEN', ['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_', 'github_pat_'], 40, {
    more: '[A-Za-z0-9_.-]',
    most: 1_024,
  }),
  rule('GITLAB_PERSONAL_ACCESS_TOKEN', ['glpat-'], 26),
  rule('GOOGLE_API_KEY', ['AIza'], 39),
  rule('GRAFANA_CLOUD_API_TOKEN', ['glc_'], 36, { more: '[A-Za-z0-9+/=]', most: 512 }),
  rule('GRAFANA_SERVICE_ACCOUNT_TOKEN', ['glsa_'], 46),
  rule('GROQ_API_KEY', ['gsk_'], 56),
  rule('HASHICORP_VAULT_SERVICE_TOKEN', ['hvs.'], 94),
  rule('HASHICORP_VAULT_BATCH_TOKEN', ['hvb.'], 142, { most: 512 }),
  rule('HASHICORP_VAULT_RECOVERY_TOKEN', ['hvr.'], 94),
  rule('HUGGINGFACE_USER_ACCESS_TOKEN', ['hf_'], 37),
  rule('IncomingWebhook', ['hooks.slack.com'], 30, { more: '[A-Za-z0-9/\\\\]' }),
  rule('JSON_WEB_TOKEN', ['eyJ'], 60, { more: '[A-Za-z0-9_.-]', most: MAX_CLAIMS }),
  rule('LINEAR_API_TOKEN', ['lin_api_'], 40),
  rule('NOTION_INTEGRATION_TOKEN', ['ntn_'], 50),
  rule('NPM_ACCESS_TOKEN', ['npm_'], 40),
  rule('OPENAI_TOKEN', ['sk-'], 48),
  rule('OPS_TOKEN', ['ops_ey'], 106, { more: '[A-Za-z0-9+/=]', most: 1_536 }),
  rule('PrivateKey', ['-----BEGIN'], 150, {
    more: '[A-Za-z0-9+/=\\s\\\\ -]',
    most: MAX_PEM,
    head: /^-----BEGIN ?(?:[A-Z]+ ){0,2}PRIVATE KEY/,
    tail: /-----END ?(?:[A-Z]+ ){0,2}PRIVATE KEY(?: BLOCK)?-----/,
  }),
  rule('SHOPIFY_KEY', ['shppa_', 'shpca_', 'shpat_', 'shpss_'], 38),
  rule('SLACK_TOKEN', ['xoxb-', 'xoxp-', 'xapp-', 'xoxa-', 'xoxo-', 'xoxr-'], 8),
  rule('STRIPE_SECRET_KEY_LIVE', ['sk_live_'], 32),
  rule('STRIPE_SECRET_KEY_TEST', ['sk_test_'], 32),
  rule('STRIPE_RESTRICTED_KEY_LIVE', ['rk_live_'], 32),
  rule('STRIPE_RESTRICTED_KEY_TEST', ['rk_test_'], 32),
  rule('STRIPE_WEBHOOK_SECRET', ['whsec_'], 38),
  rule('TAILSCALE_KEY', ['tskey-'], 34),
  rule('VERCEL_PERSONAL_ACCESS_TOKEN', ['vcp_'], 24),
  rule('VERCEL_INTEGRATION_TOKEN', ['vci_'], 24),
  rule('VERCEL_APP_ACCESS_TOKEN', ['vca_'], 24),
  rule('VERCEL_APP_REFRESH_TOKEN', ['vcr_'], 24),
  rule('VERCEL_AI_GATEWAY_API_KEY', ['vck_'], 24),
]

/** The rules that also find what examples and ordinary code have: on only if a file names them. */
export const FURTHER_RULES: readonly SecretRule[] = [
  rule('BasicAuth', ['://'], 12, { more: URL_PART, most: 512 }),
  rule('MongoDBConnection', ['mongodb'], 20, { more: URL_PART, most: 512 }),
  rule('MySQLConnection', ['mysql'], 18, { more: URL_PART, most: 512 }),
  rule('PostgreSQLConnection', ['postgres'], 20, { more: URL_PART, most: 512 }),
  rule('Npmrc_authToken', ['_authToken='], 12, { more: '[^\\n\\r]' }),
  rule('SENDGRID_KEY', ['SG.'], 8, { more: '[A-Za-z0-9_.-]' }),
]

const ALL_RULES: ReadonlyMap<string, SecretRule> = new Map(
  [...RECOMMENDED_RULES, ...FURTHER_RULES].map((one) => [one.name, one]),
)

export const RULE_NAMES: readonly string[] = [...ALL_RULES.keys()]

/** Returns the rules of these names. Throws if there is none of a name. */
export const rulesNamed = (names: readonly string[]): readonly SecretRule[] =>
  names.map((name) => {
    const found = ALL_RULES.get(name)
    if (!found) throw new Error(`there is no rule ${name}`)
    return found
  })
