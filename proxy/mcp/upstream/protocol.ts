import type { JsonObject } from '../../../db/json.ts'

/**
 * What we say we are capable of when we read a server: all there is. Some list a tool only to those who can answer what it
 * asks, and every tool is to be pinned; whether a caller can answer shows when the caller calls.
 */
export const READER_CAPABILITIES: JsonObject = {
  roots: {},
  sampling: {},
  elicitation: { form: {}, url: {} },
}

/** Error codes that only a server of the modern era gives: header mismatch, missing client capability, unsupported version. */
export const HEADER_MISMATCH = -32020
export const MISSING_CLIENT_CAPABILITY = -32021
export const UNSUPPORTED_VERSION = -32022
export const METHOD_NOT_FOUND = -32601

/** The text of a request. `params` is the JSON text of an object, or null for none. */
export function requestText(id: number, method: string, params: string | null): string {
  return `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}${paramsMember(params)}}`
}

/** The text of a notification. `params` as in {@link requestText}. */
export function notificationText(method: string, params: string | null): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${paramsMember(params)}}`
}

const paramsMember = (params: string | null): string => (params === null ? '' : `,"params":${params}`)
