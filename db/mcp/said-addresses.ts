import { hash } from 'node:crypto'
import type { Database } from '../database.ts'
import type { LedgerState } from '../ledger/authority/ledger-state.ts'
import { listText } from '../ledger/authority/states.ts'
import { detailsOf } from '../ledger/read/find.ts'
import { keptRows } from '../ledger/verify/kept.ts'
import { isObject, type UnknownRecord } from '../support/json.ts'
import { type McpResource, oauthText } from './resources.ts'

/** The rows that say where the calls of a server go, and as whom. */
const FOUND = 'authority.bound'
const ACTIONS = [FOUND, 'mcp_resource.created', 'mcp_resource.updated']

/** Clocks of processes differ by less. ms. */
const OVERLAP_MS = 600_000

type SaidAddress = Readonly<Record<string, { readonly text: string; readonly revision: number }>>

/**
 * Returns the question whether a server's address and credentials, as its table has them, are those that rows
 * have said last (docs/ledger.md#owner). Reads the rows once, then those since; never for an answer that it
 * knows to be yes.
 */
export function addressIsSaid({ kysely }: Database): (resource: McpResource) => Promise<boolean> {
  const said = new Map<string, SaidAddress>()
  let since = 0
  let reading: Promise<void> | null = null

  const read = async (): Promise<void> => {
    if (since === 0) {
      const { resources = {} } = (await archivedState(kysely)) ?? {}
      for (const [id, { revision, fields }] of Object.entries(resources))
        said.set(id, laterOf(said.get(id), textsOf(fields), revision))
    }
    let last = since
    for (const action of ACTIONS) {
      const filter = { action, status: 'success', since: Math.max(0, since - OVERLAP_MS) }
      for await (const { at, detail } of detailsOf(kysely, filter)) {
        last = Math.max(last, Date.parse(at))
        const { resource_id: id, revision, fields } = detail
        // Rows of version 1 have none; what an upgrade has found of theirs is older than any change since.
        const order = action === FOUND ? 0 : revision
        if (typeof id !== 'string' || typeof order !== 'number') continue
        said.set(id, laterOf(said.get(id), textsOf(isObject(fields) ? fields : detail), order))
      }
    }
    since = last
  }
  const isSaid = ({ resource_id: id, ...resource }: McpResource): boolean => {
    const known = said.get(id)
    const has = addressOf(resource)
    return known !== undefined && Object.keys(known).every((name) => known[name]?.text === has[name])
  }
  return async (resource) => {
    if (isSaid(resource)) return true
    // What has begun may have read past the newest row.
    await reading
    reading ??= read().finally(() => {
      reading = null
    })
    await reading
    return isSaid(resource)
  }
}

/** Reads what the archived rows have left, if a row says that it is that. */
async function archivedState(kysely: Database['kysely']): Promise<LedgerState | null> {
  const before = (await keptRows(kysely))?.before
  if (!before) return null
  for await (const { detail } of detailsOf(kysely, { action: 'ledger.archived' }))
    if (detail.state === before.sha256) return before.state
  return null
}

type AddressFields = Pick<
  McpResource,
  'endpoint_url' | 'auth_type' | 'auth_secret_ref' | 'allowed_domains' | 'oauth'
>

const addressOf = ({ endpoint_url: endpoint, oauth, ...said }: AddressFields) =>
  textsOf({ ...said, endpoint_url_sha256: hash('sha256', endpoint), oauth_sha256: oauthDigest(oauth) })

/** The digest of settings as rows say it; null: there are none. */
export function oauthDigest(settings: McpResource['oauth']): string | null {
  const text = oauthText(settings)
  return text && hash('sha256', text)
}

const MEMBERS = ['endpoint_url_sha256', 'auth_type', 'auth_secret_ref', 'allowed_domains', 'oauth_sha256']

/** The members that a row says, as texts; those that it leaves out are left out. */
const textsOf = (said: UnknownRecord): Readonly<Record<string, string>> =>
  Object.fromEntries(
    MEMBERS.flatMap((name) => (Object.hasOwn(said, name) ? [[name, listText(said[name])]] : [])),
  )

/** The revision says which row is later, for clocks of processes differ. */
const laterOf = (
  known: SaidAddress = {},
  texts: Readonly<Record<string, string>>,
  revision: number,
): SaidAddress => ({
  ...known,
  ...Object.fromEntries(
    Object.entries(texts).flatMap(([name, text]) =>
      (known[name]?.revision ?? -1) < revision ? [[name, { text, revision }]] : [],
    ),
  ),
})
