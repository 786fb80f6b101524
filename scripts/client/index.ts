// The entry of `sallyport/client` and of the package `sallyport-client`. An older Node would end it with a
// syntax error about some name that it lacks: so all else is loaded once the version is known. Not by
// `await`, which `require` of this module could not wait for.
import { createRequire } from 'node:module'
import type * as Client from './client.ts'
import { refuseOldNode } from './needed-node.ts'

refuseOldNode(process.versions.node)
const path = import.meta.url.endsWith('.ts') ? './client.ts' : './client.js'
// That file has these exports.
const client = createRequire(import.meta.url)(path) as typeof Client

export const { createFetch, enrollByoca, enrollSpiffe, GatewayRefusal, mint, readIdentity, version } = client
