import { errors } from 'jose'
import type { UnknownRecord } from '../../db/support/json.ts'
import { parseJsonObject } from '../json-body/object.ts'
import type { WrongTime } from '../refusal.ts'

/** A JWS in its compact form, taken apart and not yet believed. */
export interface ParsedJwt {
  readonly header: UnknownRecord
  readonly claims: UnknownRecord
  /** The text that the signature is over: the first two segments and their dot. */
  readonly signed: string
  readonly signature: Buffer
}

/** The end of the times that can be told, in s since the epoch (ECMA-262 §21.4.1.1). */
const LAST_S = 8_640_000_000_000

const SEGMENT = /^[A-Za-z0-9_-]+$/

/**
 * Takes a compact JWS apart, or returns null: exactly three segments of canonical base64url without padding,
 * header and claims JSON objects in which no name stands twice (docs/threats.md#t13). Does NOT check the
 * signature or any member.
 */
export function parseJwt(text: string, maxBytes: number): ParsedJwt | null {
  const segments = jwtSegments(text, maxBytes)
  if (!segments) return null
  const { head, body, signed, tail } = segments
  const header = segmentObject(head)
  const claims = segmentObject(body)
  const signature = decodeBase64url(tail)
  return header && claims && signature && { header, claims, signed, signature }
}

/** The segments of a compact JWS as they are written, none of them read yet. */
interface Segments {
  readonly head: string
  readonly body: string
  readonly tail: string
  readonly signed: string
}

/** Divides a text at its dots, or returns null if they are not two. */
export function jwtSegments(text: string, maxBytes: number): Segments | null {
  if (text.length > maxBytes) return null
  const first = text.indexOf('.')
  const second = text.indexOf('.', first + 1)
  if (first < 0 || second < 0 || text.includes('.', second + 1)) return null
  return {
    head: text.slice(0, first),
    body: text.slice(first + 1, second),
    tail: text.slice(second + 1),
    signed: text.slice(0, second),
  }
}

export function segmentObject(segment: string): UnknownRecord | null {
  const bytes = decodeBase64url(segment)
  return bytes && parseJsonObject(bytes)
}

/** Returns the bytes of a base64url text; null if another text stands for them too (RFC 4648 §3.5). */
export function decodeBase64url(text: string): Buffer | null {
  if (!SEGMENT.test(text)) return null
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? bytes : null
}

/** Returns the time for which alone a token was refused, its signature verified; else null. */
export function refusedTime(error: unknown): WrongTime | null {
  const isOfTime = error instanceof errors.JWTExpired || error instanceof errors.JWTClaimValidationFailed
  return isOfTime ? wrongTime(error.claim, error.payload) : null
}

/** Returns a time of these claims, or null if that claim is none. */
export function wrongTime(claim: unknown, claims: UnknownRecord): WrongTime | null {
  if (claim !== 'iat' && claim !== 'nbf' && claim !== 'exp') return null
  const time = claims[claim]
  return typeof time === 'number' && Math.abs(time) < LAST_S ? { claim, time } : null
}
