import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort, listening, type Peer, said } from './peer.ts'

/** One process of nginx as an mTLS reverse proxy, with everything it writes in the run's directory. */
export const NGINX: Peer = {
  name: 'nginx',
  what: 'mTLS reverse proxy, one process',
  serves: 'proxy',
  version: () => said('nginx', ['-v'], /nginx\/(\S+)/),
  prepare: async ({ directory, upstreamPort }) => {
    const own = join(directory, 'nginx')
    await mkdir(own, { recursive: true })
    const port = await freePort()
    const file = join(own, 'nginx.conf')
    await writeFile(file, configuration(directory, own, port, upstreamPort))
    return {
      start: {
        name: 'nginx',
        command: 'nginx',
        args: ['-p', own, '-e', join(own, 'error.log'), '-c', file],
        ready: (child) => listening(port, child),
      },
    }
  },
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
