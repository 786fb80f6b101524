import { CADDY } from './caddy.ts'
import { CONTEXTFORGE } from './contextforge.ts'
import { HAPROXY } from './haproxy.ts'
import { LITELLM } from './litellm.ts'
import { NGINX } from './nginx.ts'
import type { Peer } from './peer.ts'
import { PORTKEY } from './portkey.ts'

/** Lists the servers of others, the cheapest first. */
export const PEERS: readonly Peer[] = [HAPROXY, NGINX, CADDY, PORTKEY, LITELLM, CONTEXTFORGE]

/** A peer and its version; null: it is not installed. */
export interface Found {
  readonly name: string
  readonly version: string | null
}

/** Looks which of them are installed. `installed`: the directory of `--peers`. */
export const findPeers = (installed: string | undefined): readonly Found[] =>
  PEERS.map(({ name, version }) => ({ name, version: version(installed) }))
