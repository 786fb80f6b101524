import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'

interface Asset {
  /** Holds a digest of the content: a new version has a new path. */
  readonly path: string
  readonly reply: Reply
}

function asset(file: string, type: string): Asset {
  const body = readFileSync(new URL(`./assets/${file}`, import.meta.url), 'utf8')
  const [name = '', ending = ''] = file.split('.')
  const headers = {
    'content-type': `${type}; charset=utf-8`,
    'cache-control': 'public, max-age=31536000, immutable',
    'cross-origin-resource-policy': 'same-origin',
  }
  return {
    path: `/proxy/assets/${name}-${hash('sha256', body).slice(0, 12)}.${ending}`,
    reply: { status: 200, headers, body },
  }
}

/** Files of pages, from nowhere else. The same for everybody: they say nothing of this service's state. */
export const ASSETS = {
  style: asset('dashboard.css', 'text/css'),
  script: asset('dashboard.js', 'text/javascript'),
  /** For the page Activity alone, after the script of all. */
  activity: asset('activity.js', 'text/javascript'),
} as const

const REPLIES = new Map(Object.values(ASSETS).map(({ path, reply }) => [path, reply]))

/** One route for all: their digests are no part of a route's path, which is a label of `/metrics`. */
export const ASSET_ROUTE = '/proxy/assets/{file}'

export function serveAsset({ path }: Arrival): Reply {
  const reply = REPLIES.get(path)
  if (!reply) throw new Refusal('not_found')
  return reply
}
