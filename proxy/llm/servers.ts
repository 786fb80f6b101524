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
}

const presetOf = ({ server }: WrittenProvider): ServerPreset | undefined => server && SERVERS[server]

export const keyHeaderOf = (provider: WrittenProvider): string =>
  presetOf(provider)?.keyHeader ?? DIALECT_BY_NAME[provider.dialect].key.header

export const defaultAuth = (provider: WrittenProvider): 'api_key' | 'bearer' =>
  presetOf(provider)?.auth ?? DIALECT_BY_NAME[provider.dialect].key.auth

export const defaultSpeaks = (provider: WrittenProvider): readonly ApiWire[] =>
  provider.dialect === 'anthropic' ? ['messages'] : (presetOf(provider) ?? SERVERS.openai).speaks
