import type { JsonObject } from '../../../db/json.ts'
import { isObject, type Members } from '../../../db/json.ts'
import { META } from '../protocol/versions.ts'

/** What a server says of itself is kept up to here. Characters of JSON text; of plain text for the instructions. */
const MAX_CAPABILITIES = 16_384
const MAX_SERVER_INFO = 16_384
const MAX_INSTRUCTIONS = 16_384

/**
 * What the result of `server/discover` or `initialize` says of the server, as far as given: an object that is too large is
 * left out, instructions that are too long are cut. The server says it of itself: it decides what is asked of it and offered in its name, and
 * never who may.
 */
export function factsOf(result: Members): JsonObject {
  const { capabilities, instructions } = result
  const serverInfo = serverInfoOf(result)
  return {
    ...(fits(capabilities, MAX_CAPABILITIES) && { capabilities }),
    ...(fits(serverInfo, MAX_SERVER_INFO) && { serverInfo }),
    ...(typeof instructions === 'string' && { instructions: cut(instructions) }),
  }
}

/** It stands in `_meta` since 2026-07-28 (server/discover), beside the capabilities before. */
function serverInfoOf({ _meta: meta, serverInfo }: Members): unknown {
  return (isObject(meta) ? meta[META.serverInfo] : undefined) ?? serverInfo
}

/** An object that came out of JSON.parse is one of JSON. */
const fits = (value: unknown, most: number): value is JsonObject =>
  isObject(value) && JSON.stringify(value).length <= most

/** Never through the middle of a character. */
const cut = (text: string): string =>
  text.length <= MAX_INSTRUCTIONS ? text : text.slice(0, MAX_INSTRUCTIONS).replace(/[\uD800-\uDBFF]$/, '')
