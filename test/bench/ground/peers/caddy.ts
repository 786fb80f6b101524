import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort, listening, type Peer, said } from './peer.ts'

/** Caddy as an mTLS reverse proxy. */
export const CADDY: Peer = {
  name: 'Caddy',
  what: 'mTLS reverse proxy, GOMAXPROCS=1',
  serves: 'proxy',
  version: () => said('caddy', ['version'], /v?(\d[\d.]*)/),
  prepare: async ({ directory, upstreamPort }) => {
    const port = await freePort()
    const file = join(directory, 'Caddyfile')
    await writeFile(file, configuration(directory, port, upstreamPort))
    return {
      start: {
        name: 'caddy',
        command: 'caddy',
        args: ['run', '--adapter', 'caddyfile', '--config', file],
        env: { GOMAXPROCS: '1', HOME: directory, XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory },
        ready: (child) => listening(port, child),
      },
    }
  },
}

const configuration = (directory: string, port: number, upstreamPort: number): string => `
{
  admin off
  auto_https off
  servers {
    protocols h1
  }
}
https://localhost:${port} {
  bind 127.0.0.1
  tls ${directory}/server.crt ${directory}/server.key {
    protocols tls1.3
    client_auth {
      mode require_and_verify
      trusted_ca_cert_file ${directory}/clients-ca.crt
    }
  }
  reverse_proxy 127.0.0.1:${upstreamPort} {
    flush_interval -1
    transport http {
      keepalive_idle_conns_per_host 512
    }
  }
}
`
