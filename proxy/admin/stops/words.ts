import type { StopView } from './stops.ts'

const WHOLE = { all: 'every call', llm: 'calls to models', mcp: 'calls to MCP servers' } as const

/** Says in words which calls a stop is for. */
export function stoppedText(scope: StopView['scope']): string {
  if (typeof scope === 'string') return WHOLE[scope]
  if ('principal' in scope) return `calls of ${scope.principal}`
  return 'resource' in scope ? `calls that reach ${scope.resource}` : `calls of all ${scope.kind}`
}
