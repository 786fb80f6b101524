import type { IncomingHttpHeaders } from 'node:http'
import { HOP_BY_HOP } from '../../proxy/egress/hop-by-hop.ts'

// Answered or checked on this side. Cookies of any program on this machine would come along: they know no
// ports.
const ENDS_HERE = ['host', 'expect', 'origin', 'referer', 'cookie', 'accept-encoding']

/** The headers of a local request that go on to the gateway. */
export function forwardedRequestHeaders(
  rawHeaders: readonly string[],
  { connection }: IncomingHttpHeaders,
): string[] {
  const dropped = new Set([...HOP_BY_HOP, ...ENDS_HERE, ...nominated(connection)])
  const kept = pairs(rawHeaders).filter(
    ([name]) => !dropped.has(name.toLowerCase()) && !name.toLowerCase().startsWith('sec-fetch-'),
  )
  // What is not compressed can be passed on event by event.
  return [...kept.flat(), 'accept-encoding', 'identity']
}

/** The headers of the gateway's answer that go on to the local client. */
export function forwardedAnswerHeaders(rawHeaders: readonly string[]): string[] {
  const all = pairs(rawHeaders)
  const connection = all.find(([name]) => name.toLowerCase() === 'connection')?.[1]
  const dropped = new Set([
    ...HOP_BY_HOP,
    'strict-transport-security',
    'dpop-nonce',
    ...nominated(connection),
  ])
  return all.filter(([name]) => !dropped.has(name.toLowerCase())).flat()
}

const nominated = (connection = ''): string[] => connection.toLowerCase().split(/\s*,\s*/)

function pairs(raw: readonly string[]): [name: string, value: string][] {
  const found: [string, string][] = []
  for (let i = 0; i + 1 < raw.length; i += 2) found.push([raw[i] ?? '', raw[i + 1] ?? ''])
  return found
}
