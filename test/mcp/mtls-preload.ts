import { readFileSync } from 'node:fs'
import { checkServerIdentity } from 'node:tls'
import { Agent, setGlobalDispatcher } from 'undici'

// For `node --import`: every `fetch` of the program comes with a client certificate. SUITE_CA, SUITE_CERT and SUITE_KEY name
// PEM files, the certificate's with its chain.
const read = (name: string): string => {
  const path = process.env[name]
  if (path === undefined) throw new Error(`${name} must name a PEM file`)
  return readFileSync(path, 'utf8')
}

setGlobalDispatcher(
  new Agent({
    connect: {
      ca: read('SUITE_CA'),
      cert: read('SUITE_CERT'),
      key: read('SUITE_KEY'),
      // The scenario dns-rebinding-protection sends this Host, and the name to check is taken from it. Our server has no
      // such name: without the exception TLS would refuse before the server could.
      checkServerIdentity: (host, certificate) =>
        host === 'evil.example.com' ? undefined : checkServerIdentity(host, certificate),
    },
  }),
)
