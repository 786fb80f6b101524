import type { CredentialOptions } from './credentials/options.ts'
import { type ApiWire, DIALECT_BY_NAME, type DialectName } from './dialects/registry.ts'

interface ServerPreset {
  readonly speaks: readonly ApiWire[]
  readonly auth?: 'api_key'
  /** Lower case: the header of the key if `auth` is `api_key`. */
  readonly keyHeader?: string
}

/** Presets of the servers that speak OpenAI's API (docs/providers.md#servers). */
const SERVERS = {
  openai: { speaks: ['chat', 'responses'] },
  azure: { speaks: ['chat', 'responses'], auth: 'api_key', keyHeader: 'api-key' },
  vllm: { speaks: ['chat', 'responses', 'messages'] },
  ollama: { speaks: ['chat', 'responses', 'messages'] },
  llamacpp: { speaks: ['chat', 'responses', 'messages'] },
  deepseek: { speaks: ['chat'] },
  gemini: { speaks: ['chat'] },
} as const satisfies Record<string, ServerPreset>

type ServerName = keyof typeof SERVERS

// Its keys are these names.
export const SERVER_NAMES = Object.keys(SERVERS) as readonly ServerName[]

interface WrittenProvider {
  readonly dialect: DialectName
  readonly server?: ServerName | undefined
  readonly api: string
  readonly credentials?: CredentialOptions | undefined
}

const presetOf = ({ server }: Pick<WrittenProvider, 'server'>): ServerPreset | undefined =>
  server && SERVERS[server]

export const keyHeaderOf = (provider: Pick<WrittenProvider, 'dialect' | 'server'>): string =>
  presetOf(provider)?.keyHeader ?? DIALECT_BY_NAME[provider.dialect].key.header

export function defaultAuth(provider: WrittenProvider): 'api_key' | 'bearer' {
  const { dialect, api, credentials } = provider
  // Tokens of clouds are no keys.
  if (api === 'vertex' || (credentials && credentials.kind !== 'file')) return 'bearer'
  return presetOf(provider)?.auth ?? DIALECT_BY_NAME[dialect].key.auth
}

export const defaultSpeaks = (provider: WrittenProvider): readonly ApiWire[] =>
  provider.dialect === 'anthropic' ? ['messages'] : (presetOf(provider) ?? SERVERS.openai).speaks
