import type { Test } from 'tap'
import type { McpUpstreamOptions } from '../../../proxy/mcp/upstream/client.ts'
import type { UpstreamReading } from '../../../proxy/mcp/upstream/reading.ts'
import { READING } from '../permit.ts'
import {
  type Act,
  type RawMcp,
  resourceAt,
  result,
  sendJson,
  type Told,
  upstreamFor,
} from './raw-upstream.ts'

export type Json = Readonly<Record<string, unknown>>

export const tool = (name: string): Json => ({ name, inputSchema: { type: 'object' } })
export const named = (count: number, from = 0): Json[] =>
  Array.from({ length: count }, (_, at) => tool(`t${from + at}`))

export const DISCOVERED = {
  resultType: 'complete',
  supportedVersions: ['2026-07-28'],
  capabilities: { tools: { listChanged: true } },
  instructions: 'Be kind.',
  _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'raw', version: '1' } },
  ttlMs: 0,
  cacheScope: 'public',
}

/** A server of the modern era that lists tools as `list` says. */
export const modern =
  (list: (told: Told) => Json, discovered: Json = DISCOVERED): Act =>
  (res, told) => {
    const value = told.rpc === 'server/discover' ? discovered : { resultType: 'complete', ...list(told) }
    sendJson(res, result(told, value))
  }

export const read = (
  t: Test,
  { url }: RawMcp,
  options: Partial<McpUpstreamOptions> = {},
): Promise<UpstreamReading> =>
  upstreamFor(t, options).read(READING, resourceAt(url, { era: null }), new AbortController().signal)
