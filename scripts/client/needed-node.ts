// Imported before anything else, on whatever Node there is: this file imports only what imports nothing.
import { isOlder } from '../../proxy/boot/runtime-check.ts'

// Needed by undici 8. The gateway itself needs a newer one, for reasons of its own.
const OLDEST_NODE = [22, 19, 0] as const

/** Throws one sentence if a client cannot run on this version of Node. */
export function refuseOldNode(version: string): void {
  if (!isOlder(version, OLDEST_NODE)) return
  throw new Error(
    `the client of sallyport needs Node ${OLDEST_NODE.join('.')} or newer, this is ${version}: install it from https://nodejs.org`,
  )
}
