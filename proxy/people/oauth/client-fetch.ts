import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import { egressAgent, type ResolveHost } from '../../egress/agent.ts'
import { boundedFetch } from '../../egress/bounded-fetch.ts'
import type { PeopleOptions } from '../options.ts'
import { clientMetadata, documentRule } from './clients.ts'

/** The longest document of a client, and the longest time for it. */
export const MAX_DOCUMENT_BYTES = 16 * 1024
const DOCUMENT_MS = 5_000

interface DocumentSources {
  readonly options: Pick<PeopleOptions, 'clients'>
  readonly grantTypes: readonly string[]
  /** Counts the documents that are fetched, all together. */
  readonly fetches: PrincipalQuota
  readonly resolve?: ResolveHost
}

/**
 * Makes the function that fetches clients' documents, and the keys that they name: from public addresses, without a
 * redirect, by at most so many requests a minute. A document whose address `clients.allow` has to the letter may
 * be at a private one. Rejects for all else.
 */
export function documentFetcher({ options, grantTypes, fetches, resolve }: DocumentSources) {
  const agentFor = (allowPrivate: boolean) =>
    egressAgent({
      allowPrivate,
      connectMs: DOCUMENT_MS,
      answerMs: DOCUMENT_MS,
      keepAlive: false,
      ...(resolve && { resolve }),
    })
  const agents = { public: agentFor(false), private: agentFor(true) }
  return async (text: string | URL): Promise<Response> => {
    const url = new URL(text)
    if (url.protocol !== 'https:') throw new Error('a client document has an https URL')
    if (fetches.consume('documents') > 0) throw new Error('too many client documents are fetched')
    const rule = documentRule(options, url.href)
    const agent = rule === url.href ? agents.private : agents.public
    const init = { method: 'GET', headers: { accept: 'application/json' } }
    const answer = await boundedFetch(agent, url, init, { ms: DOCUMENT_MS, bytes: MAX_DOCUMENT_BYTES })
    const age = answer.headers.get('cache-control')
    return new Response(reduced(await answer.text(), url.href, grantTypes), {
      status: answer.status,
      headers: { 'content-type': 'application/json', ...(age !== null && { 'cache-control': age }) },
    })
  }
}

/** Leaves of a document what counts here; a set of keys, or what is no document, is passed on as it is. */
function reduced(text: string, address: string, grantTypes: readonly string[]): string {
  const said = objectIn(text)
  if (said?.client_id !== address) return text
  const { client_secret, client_secret_expires_at, ...rest } = said
  // The library refuses them by name.
  const secrets = {
    ...(client_secret !== undefined && { client_secret }),
    ...(client_secret_expires_at !== undefined && { client_secret_expires_at }),
  }
  return JSON.stringify({ ...clientMetadata(rest, grantTypes), ...secrets })
}

function objectIn(text: string): UnknownRecord | null {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : null
  } catch {
    return null
  }
}
