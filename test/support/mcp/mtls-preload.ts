import { readFileSync } from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import { checkServerIdentity } from 'node:tls'
import { Agent, setGlobalDispatcher } from 'undici'

// For `node --import`: every `fetch` and every `http.request` of the program comes with a client certificate.
// SUITE_CA, SUITE_CERT and SUITE_KEY name PEM files, the certificate's with its chain.
const read = (name: string): string => {
  const path = process.env[name]
  if (path === undefined) throw new Error(`${name} must name a PEM file`)
  return readFileSync(path, 'utf8')
}

const credentials = { ca: read('SUITE_CA'), cert: read('SUITE_CERT'), key: read('SUITE_KEY') }

setGlobalDispatcher(
  new Agent({
    connect: {
      ...credentials,
      // The scenario dns-rebinding-protection sends this Host, and the name to check is taken from it. Our
      // server has no such name: without the exception TLS would refuse before the server could.
      checkServerIdentity: (host, certificate) =>
        host === 'evil.example.com' ? undefined : checkServerIdentity(host, certificate),
    },
  }),
)

// The scenarios of header validation need spellings that fetch does not let through, and speak plain HTTP
// whatever the URL says. They ask in this one form.
http.request = ((options: https.RequestOptions, onResponse?: (response: http.IncomingMessage) => void) =>
  https.request({ ...options, ...credentials }, onResponse)) as typeof http.request
