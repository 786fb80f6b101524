import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort, listening, type Peer, said } from './peer.ts'

/** HAProxy as an mTLS reverse proxy. */
export const HAPROXY: Peer = {
  name: 'HAProxy',
  what: 'mTLS reverse proxy, nbthread 1',
  serves: 'proxy',
  version: () => said('haproxy', ['-v'], /version (\d[\d.]*)/),
  prepare: async ({ directory, upstreamPort }) => {
    const port = await freePort()
    const file = join(directory, 'haproxy.cfg')
    const pem = join(directory, 'haproxy.pem')
    const parts = await Promise.all(
      ['server.crt', 'server.key'].map((name) => readFile(join(directory, name), 'utf8')),
    )
    await writeFile(pem, parts.join(''), { mode: 0o600 })
    await writeFile(file, configuration(directory, pem, port, upstreamPort))
    return {
      start: {
        name: 'haproxy',
        command: 'haproxy',
        args: ['-db', '-f', file],
        ready: (child) => listening(port, child),
      },
    }
  },
}

const configuration = (directory: string, pem: string, port: number, upstreamPort: number): string => `
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend in
  bind 127.0.0.1:${port} ssl crt ${pem} ca-file ${join(directory, 'clients-ca.crt')} verify required ssl-min-ver TLSv1.3 alpn http/1.1 no-tls-tickets
  default_backend fixed
backend fixed
  server one 127.0.0.1:${upstreamPort} maxconn 2000
`
