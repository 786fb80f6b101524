import { spawnSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Start } from './children.ts'

const PATIENCE_MS = 5_000

/** Returns the version of nginx, or null where it is not installed. */
export function nginxVersion(): string | null {
  const { status, stderr } = spawnSync('nginx', ['-v'], { encoding: 'utf8' })
  return status === 0 ? stderr.trim().replace('nginx version: ', '') : null
}

/**
 * Configures one process of nginx as an mTLS reverse proxy in front of the upstream, with everything it
 * writes in `directory`.
 */
export async function nginxStart(directory: string, upstreamPort: number): Promise<Omit<Start, 'core'>> {
  const own = join(directory, 'nginx')
  await mkdir(own, { recursive: true })
  const port = await freePort()
  const file = join(own, 'nginx.conf')
  await writeFile(file, configuration(directory, own, port, upstreamPort))
  return {
    name: 'nginx',
    command: 'nginx',
    args: ['-p', own, '-e', join(own, 'error.log'), '-c', file],
    ready: () => listening(port),
  }
}

const configuration = (directory: string, own: string, port: number, upstreamPort: number): string => `
daemon off;
master_process off;
pid ${own}/nginx.pid;
error_log ${own}/error.log;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path ${own}/body;
  proxy_temp_path ${own}/proxy;
  fastcgi_temp_path ${own}/fastcgi;
  uwsgi_temp_path ${own}/uwsgi;
  scgi_temp_path ${own}/scgi;
  keepalive_requests 1000000000;
  upstream fixed { server 127.0.0.1:${upstreamPort}; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${port} ssl;
    ssl_certificate ${directory}/server.crt;
    ssl_certificate_key ${directory}/server.key;
    ssl_protocols TLSv1.3;
    ssl_verify_client on;
    ssl_verify_depth 2;
    ssl_client_certificate ${directory}/clients-ca.crt;
    ssl_session_tickets off;
    location / {
      proxy_pass http://fixed;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`

/** Finds a free port: nginx cannot pick one and say which, so one that was free a moment ago must do. */
function freePort(): Promise<number> {
  const server = createServer()
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0))
    })
  })
}

async function listening(port: number): Promise<number> {
  const deadline = performance.now() + PATIENCE_MS
  while (performance.now() < deadline) {
    if (await answers(port)) return port
    await pause(20)
  }
  throw new Error('nginx did not start')
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
