import type { PrincipalType } from '../../../db/schema.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import type { Accounts } from './accounts.ts'

/** The time in which a link leads to its page. ms. */
const LINK_MS = 900_000
/** The longest id of a link: one whose scopes make it longer asks for all of the settings'. Characters. */
const MAX_ID = 1_500

/** The account that a link asks to be connected. */
export interface ConsentRequest {
  readonly principal: { readonly type: PrincipalType; readonly id: string }
  readonly resourceId: string
  /** Empty: all of the resource's settings. */
  readonly scopes: readonly string[]
}

/** The operator who connects the account of an agent or workload, by the name in the ledger. */
export interface ConnectingOperator {
  readonly ref: string
}

interface HandedOver {
  readonly request: ConsentRequest
  readonly operator: ConnectingOperator
}

/** Accounts and their pages, for operations and pages. */
export interface AccountDesk {
  readonly accounts: Accounts
  readonly links: ConsentLinks
  /** Has a server be read again soon. */
  readonly announce: (resourceId: string) => void
}

/** The links to the pages on which accounts are connected (docs/accounts.md). Nothing is kept of them. */
export interface ConsentLinks {
  /** Makes the id of a request. Bound to principal and resource, and over in a quarter of an hour. */
  readonly seal: (request: ConsentRequest, at: number) => string
  /** Opens an id of ours that is not over; null: it is none. */
  readonly open: (id: string, at: number) => ConsentRequest | null
  /** Makes the URL of a request: a user's own page, or that of operators for any other principal. */
  readonly urlOf: (request: ConsentRequest, at: number) => string
  /**
   * Makes the URL by which an operator's browser goes on at the listener for people, where issuers send it back
   * to: within a minute.
   */
  readonly handOver: (request: ConsentRequest, operator: ConnectingOperator, at: number) => string
  readonly openHandOver: (ticket: string, at: number) => HandedOver | null
}

interface ConsentPages {
  /** 32 bytes, the same in all processes of the service. */
  readonly key: Buffer
  /** The URL of the listener for people. */
  readonly peopleUrl: string
  /** The base URLs of the dashboard. */
  readonly adminUrls: () => readonly string[]
}

const PURPOSE = Buffer.from('account link')
const HAND_OVER = Buffer.from('account handed over')
const HAND_OVER_MS = 60_000

export function consentLinks({ key, peopleUrl, adminUrls }: ConsentPages): ConsentLinks {
  const sealed = ({ principal: { type, id }, resourceId, scopes }: ConsentRequest, until: number): string =>
    sealBytes(key, JSON.stringify([type, id, resourceId, scopes, until]), PURPOSE).toString('base64url')
  const seal: ConsentLinks['seal'] = (request, at) => {
    const id = sealed(request, at + LINK_MS)
    return id.length <= MAX_ID ? id : sealed({ ...request, scopes: [] }, at + LINK_MS)
  }
  return {
    seal,
    open: (id, at) => openRequest(key, id, at),
    handOver: (request, { ref }, at) => {
      const text = JSON.stringify([seal(request, at), ref, at + HAND_OVER_MS])
      return `${peopleUrl}/connect/as/${sealBytes(key, text, HAND_OVER).toString('base64url')}`
    },
    openHandOver: (ticket, at) => {
      const text = openedText(key, ticket, HAND_OVER)
      if (text === null) return null
      // Proven by the seal, as below.
      const [id, ref, until] = JSON.parse(text) as readonly [string, string, number]
      const request = at < until ? openRequest(key, id, at) : null
      return request && { request, operator: { ref } }
    },
    urlOf: (request, at) => {
      const id = seal(request, at)
      return request.principal.type === 'user'
        ? `${peopleUrl}/connect/${id}`
        : `${adminUrls()[0] ?? ''}/proxy/connect/${id}`
    },
  }
}

function openRequest(key: Buffer, id: string, at: number): ConsentRequest | null {
  const text = openedText(key, id, PURPOSE)
  if (text === null) return null
  // Proven by the seal: only the function above writes it.
  const [type, principal, resourceId, scopes, until] = JSON.parse(text) as readonly [
    ...[PrincipalType, string, string, readonly string[], number],
  ]
  return at < until ? { principal: { type, id: principal }, resourceId, scopes } : null
}

/** Null: somebody has made it up. */
function openedText(key: Buffer, sealed: string, purpose: typeof PURPOSE): string | null {
  try {
    return openSealed(key, Buffer.from(sealed, 'base64url'), purpose).toString()
  } catch {
    return null
  }
}
