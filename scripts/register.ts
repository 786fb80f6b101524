// `node --import sallyport/register app.mjs`, with SALLYPORT_IDENTITY=DIR: the program's own fetch reaches
// the gateway as that identity, and so does every request by undici's global dispatcher. All other origins
// are left as they were.
import { refuseUnsafeSwitches } from '../proxy/boot/runtime-check.ts'
import { refuseOldNode } from './client/needed-node.ts'

refuseOldNode(process.versions.node)
refuseUnsafeSwitches(process)
const { install } = await import('./client/install.ts')
await install(process.env.SALLYPORT_IDENTITY ?? '')
