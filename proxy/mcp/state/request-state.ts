import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Principal } from '../../../plugins/facts.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { paramsInvalid } from '../protocol/json-text.ts'

/** The principal and the call that a state was given to, and is worth something for. */
export interface StateOwner {
  readonly principal: Principal
  readonly resourceId: string
  readonly method: string
  /** The tool, prompt or URI that was asked for. */
  readonly name: string
  /** The approval that the call goes by, if it needs one. */
  readonly approval?: string | undefined
}

/** Binds the state of a multi round-trip request to principal and call (docs/threats.md#threat-6). */
export interface RequestStates {
  readonly seal: (state: string, owner: StateOwner) => string
  /** Returns the state that was sealed for this owner; null if it was not. */
  readonly tryOpen: (sealed: string, owner: StateOwner) => string | null
  /** Returns the upstream's own state, or refuses with `mcp_params_invalid`. */
  readonly open: (sealed: string, owner: StateOwner) => string
}

export const stateRefused = (): Refusal =>
  paramsInvalid('requestState was not issued for this call. Call again without it.')

const TAG_LENGTH = 43

export function requestStates(secret: Buffer): RequestStates {
  // A key of its own: the key of nonces must not sign text that an upstream writes.
  const key = createHmac('sha256', secret).update('mcp request state').digest()
  const tag = (state: string, { principal, resourceId, method, name, approval }: StateOwner): string =>
    createHmac('sha256', key)
      .update(
        JSON.stringify([
          ...[principal.type, principal.id, resourceId, method, name, state],
          ...(approval === undefined ? [] : [approval]),
        ]),
      )
      .digest('base64url')
  const tryOpen: RequestStates['tryOpen'] = (sealed, owner) => {
    const state = sealed.slice(TAG_LENGTH)
    const given = Buffer.from(sealed.slice(0, TAG_LENGTH))
    const right = Buffer.from(tag(state, owner))
    return given.length === right.length && timingSafeEqual(given, right) ? state : null
  }
  return {
    seal: (state, owner) => tag(state, owner) + state,
    tryOpen,
    open: (sealed, owner) => {
      const state = tryOpen(sealed, owner)
      if (state === null) throw stateRefused()
      return state
    },
  }
}
